//! Serializers that replace secrets in settings with `***`.

use std::collections::BTreeMap;

use attache::model::Secret;
use serde::{Serialize, Serializer};

/// Text written in place of a secret.
const MASK: &str = "***";

/// Serializes the names of the secrets, with masked values.
pub(crate) fn map<S: Serializer>(
    secrets: &BTreeMap<String, Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(secrets.keys().map(|name| (name, MASK)))
}

/// Serializes an optional secret, masked if it is set.
pub(crate) fn option<S: Serializer>(
    secret: &Option<Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|_| MASK).serialize(serializer)
}
