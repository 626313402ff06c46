//! Ready-made server hooks: `mask` and `deny` by regular expressions, and hooks outside of the server.

mod content;
mod deny;
mod external;
mod mask;
mod open_match;
mod patterns;

pub use deny::DenyHook;
#[cfg(unix)]
pub use external::{CommandHookSettings, CommandHookSettingsError};
pub use external::{DenialKind, ExternalHook, HttpHookSettings, HttpHookSettingsError};
pub use mask::MaskHook;
pub use patterns::PatternError;
