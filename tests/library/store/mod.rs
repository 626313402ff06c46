//! Durability: process kills, failing stores, webhooks across restarts.

#[cfg(all(feature = "client", feature = "sqlite"))]
pub(crate) mod crash;
#[cfg(feature = "sqlite")]
pub(crate) mod damage;
#[cfg(feature = "server")]
pub(crate) mod store_failures;
#[cfg(all(feature = "jws", feature = "sqlite"))]
pub(crate) mod webhooks;
