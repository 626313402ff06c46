//! The dialect of KAOS (09, S0): calls to its agents, and requests and responses of its clients.

mod call;
mod marks;
mod response;

pub use call::write_kaos_call;
pub(super) use marks::KaosMarks;
pub use marks::may_have_kaos_marks;
pub(super) use response::{KaosMessage, KaosTask};
