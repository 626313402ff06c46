//! Limits of a listener, and the file descriptors that its connections may use.

use super::super::keyed_budget::BudgetLimits;

/// Default of [`ConnectionLimits::reserve`].
const DEFAULT_RESERVE: usize = 64;
/// File descriptors that connections may not use: other listeners, the store, the log, outgoing
/// connections, and files of agents.
const RESERVED_FILES: u64 = 192;
/// Largest part of the connections that is the reserve, if open files limit them.
const MAX_RESERVE_SHARE: usize = 8;

/// Limits on the concurrent connections of a [`LimitedListener`](super::LimitedListener).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// Maximum number of connections, without those in the reserve.
    pub total: usize,
    /// Maximum number of connections of one client: an IPv4 address, or a /64 network of IPv6.
    /// `None`: half of `total`, rounded up.
    pub per_address: Option<usize>,
    /// Maximum number of connections beyond these limits.
    pub reserve: usize,
}

impl ConnectionLimits {
    /// Creates limits with the default reserve and half of `total` for one address.
    #[must_use]
    pub const fn new(total: usize) -> Self {
        Self {
            total,
            per_address: None,
            reserve: DEFAULT_RESERVE,
        }
    }

    /// Sets the maximum number of connections of one client.
    #[must_use]
    pub const fn per_address(mut self, per_address: Option<usize>) -> Self {
        self.per_address = per_address;
        self
    }

    /// Sets the size of the reserve.
    #[must_use]
    pub const fn reserve(mut self, reserve: usize) -> Self {
        self.reserve = reserve;
        self
    }

    /// Returns the maximum number of connections of one client that is not exempt.
    pub(crate) fn max_per_address(&self) -> usize {
        self.per_address.unwrap_or(self.total.div_ceil(2))
    }

    pub(super) fn budget(&self, is_exempt: bool) -> BudgetLimits {
        BudgetLimits {
            total: self.total,
            per_key: if is_exempt {
                usize::MAX
            } else {
                self.max_per_address()
            },
            floor: 0,
        }
    }

    /// Lowers the limits to what the process may open, and logs a warning then.
    pub(super) fn fit_open_files(self) -> Self {
        let files = open_file_limit();
        let fitting = self.fit(files);
        if fitting.total < self.total {
            tracing::warn!(
                max_connections = fitting.total,
                configured = self.total,
                open_files = files,
                "connection limit lowered by the limit on open files; \
                 raise it (LimitNOFILE, ulimit -n) or lower max_connections"
            );
        }
        fitting
    }

    /// Returns the limits for a process that may open `files` files.
    fn fit(self, files: Option<u64>) -> Self {
        let total = self.total.max(1);
        let reserve = self.reserve.max(1);
        let available = files.map_or(usize::MAX, available_files);
        if total.saturating_add(reserve) <= available {
            return Self {
                total,
                reserve,
                ..self
            };
        }
        let reserve = reserve.min(available / MAX_RESERVE_SHARE).max(1);
        let total = available.saturating_sub(reserve).clamp(1, total);
        Self {
            total,
            // A limit above the lowered total would be none.
            per_address: self.per_address.map(|limit| limit.min(total.div_ceil(2))),
            reserve,
        }
    }
}

/// Returns the number of files that connections may use.
fn available_files(files: u64) -> usize {
    let reserved = RESERVED_FILES.max(files / 8).min(files / 2);
    usize::try_from(files - reserved).unwrap_or(usize::MAX)
}

/// Returns the soft limit on open files (`RLIMIT_NOFILE`), if there is one.
#[cfg(unix)]
fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn open_file_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d05_limits_leave_files_for_others() {
        for (total, files, expected, reserve) in [
            (50_000, None, 50_000, 64),
            (50_000, Some(1 << 20), 50_000, 64),
            (50_000, Some(1_024), 768, 64),
            (50_000, Some(256), 112, 16),
            (100, Some(1_024), 100, 64),
            (100, Some(20), 9, 1),
            (100, Some(1), 1, 1),
            (0, Some(0), 1, 1),
        ] {
            let fitting = ConnectionLimits::new(total).fit(files);
            assert_eq!(fitting.total, expected, "{files:?}");
            assert_eq!(fitting.reserve, reserve, "{files:?}");
            assert_eq!(fitting.max_per_address(), expected.div_ceil(2));
        }
    }

    #[test]
    fn d05_a_lowered_total_lowers_the_limit_of_an_address() {
        let limits = ConnectionLimits::new(50_000).per_address(Some(5_000));
        assert_eq!(limits.fit(Some(1_024)).max_per_address(), 384);
        assert_eq!(limits.fit(None).max_per_address(), 5_000);
        let strict = limits.per_address(Some(10));
        assert_eq!(strict.fit(Some(1_024)).max_per_address(), 10);
    }
}
