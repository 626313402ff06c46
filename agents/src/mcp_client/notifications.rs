//! Notifications that an MCP server sends: changes of its tools, and progress of calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::{Mutex, mpsc};

use super::pending_call::CallProgress;

/// Handler of a server's notifications.
///
/// It declares no capabilities, so rmcp refuses all requests of the server: a server learns nothing about conversations
/// except the arguments of its calls.
#[derive(Default)]
pub(super) struct NotificationHandler {
    tools_changed: AtomicBool,
    /// Receivers of progress, by the token of their call.
    pub(super) progress_senders: Mutex<HashMap<ProgressToken, mpsc::Sender<CallProgress>>>,
}

impl NotificationHandler {
    /// Marks the tool list as outdated.
    pub(super) fn mark_tools_changed(&self) {
        self.tools_changed.store(true, Ordering::Release);
    }

    /// Returns whether the tool list is outdated, and clears the mark.
    pub(super) fn take_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::AcqRel)
    }
}

impl ClientHandler for NotificationHandler {
    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("attache", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), client)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.mark_tools_changed();
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let senders = self.progress_senders.lock().await;
        if let Some(sender) = senders.get(&progress.progress_token) {
            // A full queue drops the notification; a later one supersedes it.
            let _ = sender.try_send(CallProgress {
                progress: progress.progress,
                total: progress.total,
                message: progress.message,
            });
        }
    }
}
