//! The four push configuration operations.
//!
//! Configurations are stored with their task; the push dispatcher reads them from the store.

use super::Service;
use super::tasks::not_found;
use crate::model::{
    Call, DeletePushConfigRequest, Error, GetPushConfigRequest, ListPushConfigsRequest,
    ListPushConfigsResponse, PushConfig, PushConfigId, Result, TaskId,
};
use crate::store::{Head, PushRegistration};

impl Service {
    /// `CreateTaskPushNotificationConfig`. Replaces the configuration with the same id.
    pub(super) async fn create_push_config(
        &self,
        call: &Call,
        config: PushConfig,
    ) -> Result<PushConfig> {
        let id = config.task_id.clone().unwrap_or_default();
        let head = self.find(call, &id).await?;
        let registration = self
            .prepare_push_config(call, config, &head.id, "url")
            .await?;
        self.save_push_config(&head, &registration).await?;
        Ok(registration.config)
    }

    /// `GetTaskPushNotificationConfig`.
    pub(super) async fn get_push_config(
        &self,
        call: &Call,
        request: GetPushConfigRequest,
    ) -> Result<PushConfig> {
        let head = self.find(call, &request.task_id).await?;
        let mut configs = self.push_configs(&head).await?;
        let index = match &request.id {
            Some(id) => configs
                .iter()
                .position(|config| config.id.as_ref() == Some(id)),
            // 04 §3.7: without an id, the configuration whose id is the task id, else the oldest.
            None => {
                let own = |config: &PushConfig| {
                    config
                        .id
                        .as_ref()
                        .is_some_and(|id| id.as_str() == head.id.as_str())
                };
                configs
                    .iter()
                    .position(own)
                    .or(Some(0))
                    .filter(|index| *index < configs.len())
            }
        };
        index
            .map(|index| configs.swap_remove(index))
            .ok_or_else(|| not_found(&request.task_id))
    }

    /// `ListTaskPushNotificationConfigs`. Not paged: `max_push_configs` bounds the number.
    pub(super) async fn list_push_configs(
        &self,
        call: &Call,
        request: ListPushConfigsRequest,
    ) -> Result<ListPushConfigsResponse> {
        let head = self.find(call, &request.task_id).await?;
        Ok(ListPushConfigsResponse {
            configs: self.push_configs(&head).await?,
            ..Default::default()
        })
    }

    /// `DeleteTaskPushNotificationConfig`. Idempotent.
    pub(super) async fn delete_push_config(
        &self,
        call: &Call,
        request: DeletePushConfigRequest,
    ) -> Result<()> {
        let head = self.find(call, &request.task_id).await?;
        self.engine.delete_config(&head, &request.id).await?;
        self.push.stop_delivery(&head.id, &request.id);
        Ok(())
    }

    /// Validates a configuration and assigns its id and protocol version. `field` is the path of its URL in the request.
    ///
    /// # Errors
    /// Invalid: egress policy forbids the URL (S22). Rate limited: the caller has too many webhooks or name lookups.
    pub(super) async fn prepare_push_config(
        &self,
        call: &Call,
        mut config: PushConfig,
        task: &TaskId,
        field: &'static str,
    ) -> Result<PushRegistration> {
        let version = call.version;
        self.push
            .check_url(call.caller_key(), &config.url, field)
            .await?;
        config.assign_id(task, version, || self.engine.new_id().into());
        let id = config.id.as_ref();
        if let Err(error) = self.push.check_quota(call.caller(), task, id).await
            && !self.is_registered(call, task, id).await
        {
            return Err(error);
        }
        config.task_id = (!task.is_empty()).then(|| task.clone());
        Ok(PushRegistration { config, version })
    }

    /// Returns whether the task has a webhook with this id. Another replica may deliver to it.
    async fn is_registered(&self, call: &Call, task: &TaskId, id: Option<&PushConfigId>) -> bool {
        if task.is_empty() || id.is_none() {
            return false;
        }
        let Ok(head) = self.find(call, task).await else {
            return false;
        };
        let configs = self.engine.list_configs(&head).await.unwrap_or_default();
        configs.iter().any(|other| other.config.id.as_ref() == id)
    }

    /// Stores a registration and starts its delivery. Returns the registration that it replaces.
    ///
    /// # Errors
    /// Invalid: the task has `max_push_configs` webhooks.
    pub(super) async fn save_push_config(
        &self,
        head: &Head,
        registration: &PushRegistration,
    ) -> Result<Option<PushRegistration>> {
        let mut existing = self.engine.list_configs(head).await?;
        let replaced = existing
            .iter()
            .position(|other| other.config.id == registration.config.id);
        let max = self.options.limits.max_push_configs;
        if replaced.is_none() && existing.len() >= max {
            let problem =
                format!("too many webhooks for this task (limit: max_push_configs = {max})");
            return Err(Error::invalid("id", problem));
        }
        self.engine.put_config(head, registration).await?;
        if let Some(id) = &registration.config.id {
            self.push.start_delivery(head, id);
        }
        Ok(replaced.map(|index| existing.swap_remove(index)))
    }

    /// Undoes [`Self::save_push_config`], unless the stored registration was changed since.
    pub(super) async fn revert_push_config(
        &self,
        head: &Head,
        registration: &PushRegistration,
        replaced: Option<PushRegistration>,
    ) -> Result<()> {
        let Some(id) = &registration.config.id else {
            return Ok(());
        };
        if !self.engine.list_configs(head).await?.contains(registration) {
            return Ok(());
        }
        match replaced {
            Some(replaced) => {
                self.engine.put_config(head, &replaced).await?;
                self.push.start_delivery(head, id);
            }
            None => {
                self.engine.delete_config(head, id).await?;
                self.push.stop_delivery(&head.id, id);
            }
        }
        Ok(())
    }

    async fn push_configs(&self, head: &Head) -> Result<Vec<PushConfig>> {
        let configs = self.engine.list_configs(head).await?.into_iter();
        Ok(configs
            .map(|PushRegistration { config, .. }| fill_task_id(config, &head.id))
            .collect())
    }
}

/// Sets the task id. A configuration that came with the first message was stored before the id was assigned.
fn fill_task_id(mut config: PushConfig, task: &TaskId) -> PushConfig {
    config.task_id.get_or_insert_with(|| task.clone());
    config
}
