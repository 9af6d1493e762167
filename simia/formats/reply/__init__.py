"""Parse and repair what a model wrote: a reply becomes messages, or the reason why it cannot."""
