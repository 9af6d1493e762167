"""Is a task, a reward, a pack's code to be trusted: static lints, the tools' own tests, the gate for tasks."""
