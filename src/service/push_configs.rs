//! The four operations on webhook registrations. They are kept with their task; who delivers reads them there.

use super::{Service, not_found};
use crate::model::{
    Call, DeletePushConfigRequest, Error, GetPushConfigRequest, ListPushConfigsRequest,
    ListPushConfigsResponse, PushConfig, Result, TaskId,
};
use crate::store::{Head, PushRegistration};

impl Service {
    /// Registers a webhook, in the place of the one of the same id.
    pub(super) async fn create_push_config(
        &self,
        call: &Call,
        config: PushConfig,
    ) -> Result<PushConfig> {
        let id = config.task_id.clone().unwrap_or_default();
        let head = self.find(call, &id).await?;
        let registered = self
            .prepare_push_config(call, config, &head.id, "url")
            .await?;
        self.save_push_config(&head, &registered).await?;
        Ok(registered.config)
    }

    /// Reads a webhook registration.
    pub(super) async fn get_push_config(
        &self,
        call: &Call,
        request: GetPushConfigRequest,
    ) -> Result<PushConfig> {
        let head = self.find(call, &request.task_id).await?;
        let mut configs = self.push_configs(&head).await?;
        let at = match &request.id {
            Some(id) => configs
                .iter()
                .position(|config| config.id.as_ref() == Some(id)),
            // 04 §3.7: without an id, the one that has the id of the task, else the oldest.
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
                    .filter(|at| *at < configs.len())
            }
        };
        at.map(|at| configs.swap_remove(at))
            .ok_or_else(|| not_found(&request.task_id))
    }

    /// Lists the webhook registrations of a task, all of them: a task has few.
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

    /// Removes a webhook registration; one that is not there is as good as removed.
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

    /// A registration as it is kept: it has an id, and names the version that its caller speaks. One that we would not
    /// call is refused (S22: on every way in).
    pub(super) async fn prepare_push_config(
        &self,
        call: &Call,
        mut config: PushConfig,
        task: &TaskId,
        field: &'static str,
    ) -> Result<PushRegistration> {
        let version = call.version;
        self.push.check_url(&config.url, field).await?;
        config.assign_id(task, version, || self.engine.new_id().into());
        self.push
            .check_quota(call.caller(), task, config.id.as_ref())?;
        config.task_id = (!task.is_empty()).then(|| task.clone());
        Ok(PushRegistration { config, version })
    }

    /// Keeps a registration; gives the one in whose place it is.
    pub(super) async fn save_push_config(
        &self,
        head: &Head,
        registered: &PushRegistration,
    ) -> Result<Option<PushRegistration>> {
        let mut there = self.engine.list_configs(head).await?;
        let replaced = there
            .iter()
            .position(|known| known.config.id == registered.config.id);
        if replaced.is_none() && there.len() >= self.limits.max_push_configs {
            return Err(Error::invalid(
                "id",
                "the task has as many webhooks as max_push_configs allows",
            ));
        }
        self.engine.put_config(head, registered).await?;
        if let Some(id) = &registered.config.id {
            self.push.start_delivery(head, id);
        }
        Ok(replaced.map(|at| there.swap_remove(at)))
    }

    /// Takes a registration back, and puts the one there in whose place it was, unless somebody has changed it meanwhile.
    pub(super) async fn revert_push_config(
        &self,
        head: &Head,
        registered: &PushRegistration,
        replaced: Option<PushRegistration>,
    ) -> Result<()> {
        let Some(id) = &registered.config.id else {
            return Ok(());
        };
        if !self.engine.list_configs(head).await?.contains(registered) {
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

/// One that came with the first message was registered before its task had an id.
fn fill_task_id(mut config: PushConfig, task: &TaskId) -> PushConfig {
    config.task_id.get_or_insert_with(|| task.clone());
    config
}
