"""Attache: a durable runtime for the Agent2Agent (A2A) protocol. `attache.agent` makes a function an agent."""
