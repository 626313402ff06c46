//! What the library promises: a file per promise, one binary.

mod rooms;
