"""Run the command line as `python -m jackline`, for places where the script is not on PATH."""

from jackline.quick.entry import main

main()
