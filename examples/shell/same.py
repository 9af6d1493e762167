"""The answer equals what the example prints, but for space around it."""

import sys

answer, printed = sys.argv[-2:]
sys.exit(answer.strip() != printed.strip())
