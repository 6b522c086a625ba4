"""The failpoint matrix: every failpoint of the program is hit in real processes, after which the installation is at rest."""
