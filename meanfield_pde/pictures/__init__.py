"""Pictures and films: the only place, with `studies.pictures`, that imports matplotlib, and only when called."""
