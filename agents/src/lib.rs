//! Ready-made A2A agents.
