"""Talk to models: requests and replies, the engine with its durable store, and the back ends behind one protocol."""
