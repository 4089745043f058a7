"""Long trials of faults: kills, full disks, vanishing files, two runs at once, many calls. `make soak` runs all."""
