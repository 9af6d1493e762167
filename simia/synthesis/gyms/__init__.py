"""Build and verify CodeGym environments: problems, gyms, their inputs and the solutions that play them."""
