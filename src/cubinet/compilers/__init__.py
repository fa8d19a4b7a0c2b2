"""Compiler adapters: each turns variants into compiled objects and says what the compiler looked at."""
