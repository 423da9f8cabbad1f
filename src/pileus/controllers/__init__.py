"""The controllers, one folder each; they are strangers to one another."""
