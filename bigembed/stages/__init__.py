"""Stages: what a method consists of, the run that holds what they publish, and what of it is used again."""
