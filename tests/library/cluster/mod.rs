//! Several servers on one PostgreSQL database. `tests/postgres` starts one; without it these tests return early.

mod database;
mod replicas;
