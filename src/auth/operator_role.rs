//! Role of an operator on the admin interface.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::Error;

/// Permissions of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OperatorRole {
    /// Reads everything.
    Viewer,
    /// Sees and answers inbox items of their agents, and nothing else.
    Approver,
    /// Reads everything, cancels and answers tasks, retries webhooks.
    Operator,
    /// Operator who also manages keys, links and the configuration.
    Admin,
}

impl OperatorRole {
    /// All roles, the most restricted ones first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Approver, Self::Operator, Self::Admin];

    /// Returns the name in key files and replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Whether the role reads tasks, webhooks and agents.
    #[must_use]
    pub fn can_view(self) -> bool {
        match self {
            Self::Viewer | Self::Operator | Self::Admin => true,
            Self::Approver => false,
        }
    }

    /// Whether the role answers inbox items.
    #[must_use]
    pub fn can_answer(self) -> bool {
        match self {
            Self::Approver | Self::Operator | Self::Admin => true,
            Self::Viewer => false,
        }
    }

    /// Whether the role cancels tasks and retries webhooks.
    #[must_use]
    pub fn can_operate(self) -> bool {
        match self {
            Self::Operator | Self::Admin => true,
            Self::Viewer | Self::Approver => false,
        }
    }
}

impl fmt::Display for OperatorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OperatorRole {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| Error::invalid("role", "must be viewer, approver, operator or admin"))
    }
}
