"""Foreign environments become packs: their data is read and mapped once, their code is run as it is installed, never copied."""
