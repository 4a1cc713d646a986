"""Procedures in which one caller waits: generators that yield what they wait for."""
