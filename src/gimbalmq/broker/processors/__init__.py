"""The request families of a broker, one module each."""
