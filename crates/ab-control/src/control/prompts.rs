//! Prompts of a session: people can queue, change and withdraw them.

use ab_api::{PromptRequest, PromptStatus, SessionId, SessionPrompt};
use ab_store::{
    IdempotencyRecord, PromptQueuePosition, QueuedPrompt, SessionPromptChange, StoreError,
};

use super::{ControlPlane, ControlPlaneError, SessionIdempotencyKey};
use crate::driver::SessionRequest;
use crate::session_machine::SessionInput;

impl ControlPlane {
    /// Queues a prompt. A prompt with `now` is placed before all other prompts and cancels the
    /// agent's current turn. A repeated request with the same key returns the first prompt.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::IllegalInput`] while the result is delivered, or with `now` while the
    /// session is paused. [`ControlPlaneError::QueueFull`] if too many prompts are queued.
    /// [`ControlPlaneError::SessionEnded`] if the session has ended.
    pub async fn queue_prompt(
        &self,
        id: SessionId,
        request: PromptRequest,
        key: Option<SessionIdempotencyKey>,
    ) -> Result<SessionPrompt, ControlPlaneError> {
        let store = &self.plane.store;
        if let Some(SessionIdempotencyKey { scope, key, request }) = &key
            && let Some(answer) = store.find_idempotent_response(scope, key, request).await?
        {
            let number = answer.parse().map_err(|_| StoreError::IdempotencyKeyReused)?;
            return self.session_prompt(id, number).await;
        }
        let PromptRequest { prompt, now } = request;
        let (input, place) = if now {
            (SessionInput::QueuePromptFirst, PromptQueuePosition::First)
        } else {
            (SessionInput::QueuePrompt, PromptQueuePosition::Last)
        };
        let idempotency = key.map(|SessionIdempotencyKey { scope, key, request }| {
            // The store fills in the number of the prompt.
            IdempotencyRecord { scope, key, request, response: String::new() }
        });
        let new = QueuedPrompt { prompt, position: place, told_approvals: Vec::new(), idempotency };
        let change = SessionPromptChange::Queue(new);
        let number = self.request(id, SessionRequest::Prompts { input: Some(input), change });
        match number.await? {
            Some(number) => self.session_prompt(id, number).await,
            None => Err(self.refusal(id).await),
        }
    }

    /// Replaces the text of a queued prompt.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::PromptNotFound`] if there is no such prompt,
    /// [`ControlPlaneError::TaskPromptNotChangeable`] for the prompt of the task, and [`StoreError::PromptNotQueued`]
    /// in [`ControlPlaneError::Store`] if the prompt is no longer queued.
    pub async fn replace_queued_prompt(
        &self,
        id: SessionId,
        number: u32,
        prompt: String,
    ) -> Result<SessionPrompt, ControlPlaneError> {
        self.check_queued(id, number).await?;
        let change = SessionPromptChange::Rewrite { number, prompt };
        match self.request(id, SessionRequest::Prompts { input: None, change }).await? {
            Some(number) => self.session_prompt(id, number).await,
            None => Err(self.refusal(id).await),
        }
    }

    /// Removes a prompt from the queue.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::PromptNotFound`] if there is no such prompt,
    /// [`ControlPlaneError::TaskPromptNotChangeable`] for the prompt of the task, and [`StoreError::PromptNotQueued`]
    /// in [`ControlPlaneError::Store`] if the prompt is no longer queued.
    pub async fn withdraw_queued_prompt(
        &self,
        id: SessionId,
        number: u32,
    ) -> Result<SessionPrompt, ControlPlaneError> {
        self.check_queued(id, number).await?;
        let (input, change) =
            (Some(SessionInput::WithdrawPrompt), SessionPromptChange::Withdraw { number });
        match self.request(id, SessionRequest::Prompts { input, change }).await? {
            Some(number) => self.session_prompt(id, number).await,
            None => Err(self.refusal(id).await),
        }
    }

    /// Returns one prompt of a session.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::NotFound`] if there is no such session, [`ControlPlaneError::PromptNotFound`]
    /// if it has no such prompt.
    pub async fn session_prompt(
        &self,
        id: SessionId,
        number: u32,
    ) -> Result<SessionPrompt, ControlPlaneError> {
        match self.plane.store.session_prompt(id, number).await {
            Err(StoreError::NotFound) => {
                self.plane.store.session_record(id).await?;
                Err(ControlPlaneError::PromptNotFound(number))
            }
            found => Ok(found?),
        }
    }

    async fn check_queued(&self, id: SessionId, number: u32) -> Result<(), ControlPlaneError> {
        let prompt = self.session_prompt(id, number).await?;
        match prompt.status {
            PromptStatus::Queued if number == 1 => Err(ControlPlaneError::TaskPromptNotChangeable),
            PromptStatus::Queued => Ok(()),
            status => Err(ControlPlaneError::Store(StoreError::PromptNotQueued(status))),
        }
    }
}
