"""What leaves the package: VTK files and pictures. pyvista, vtk and matplotlib are imported here, and only when called."""
