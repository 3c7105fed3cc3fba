"""What moves a measure: the contract of a velocity model, and one file for each model."""
