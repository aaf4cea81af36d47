"""`python -m bench.compare` compares the speed of the checkout with the speed of an older commit."""
