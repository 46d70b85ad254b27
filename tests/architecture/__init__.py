"""Rules about the code itself: who may import whom, and what the core never does."""
