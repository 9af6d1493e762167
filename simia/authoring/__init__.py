"""Make and verify packs: scaffold, inferred tools, static lints, the tools' own tests, the verification gate for tasks."""
