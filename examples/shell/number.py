"""The answer is the number that the example prints."""

import sys

answer, printed = sys.argv[-2:]
sys.exit(int(answer) != int(printed))
