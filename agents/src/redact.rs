//! Secrets in settings: read, and never written again.

use std::collections::BTreeMap;

use attache::model::Secret;
use serde::{Serialize, Serializer};

/// What stands for a secret.
const MASK: &str = "***";

/// Writes the names of secrets.
pub(crate) fn map<S: Serializer>(
    secrets: &BTreeMap<String, Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(secrets.keys().map(|name| (name, MASK)))
}

/// Says that there is a secret.
pub(crate) fn option<S: Serializer>(
    secret: &Option<Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|_| MASK).serialize(serializer)
}
