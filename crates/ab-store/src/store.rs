//! The [`Store`] handle: opens the database, sends changes to the writer, and provides connections
//! for readers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ab_api::ApprovalId;
use futures_util::future::BoxFuture;
use sqlx::SqlitePool;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::follow::{EventLogReader, EventLogScope};
use crate::record::EventRecord;
use crate::reserve::DiskReserve;
use crate::schema;
use crate::tail::{Tails, lock};
use crate::uploads::UploadState;
use crate::writer::{Order, QUEUE, Typed, Urgent, Writer, Writing};

/// The persistent state of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    orders: mpsc::Sender<Order>,
    pool: SqlitePool,
    readers: Arc<Readers>,
    closed: watch::Sender<bool>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// A value for counting the readers of the log. Every reader holds a clone.
    alive: Arc<()>,
    /// Holds the lock of the data directory as long as the store exists.
    data_dir: DataDir,
    uploads: UploadState,
}

/// Whether a change may use the room that is reserved for a full disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteUrgency {
    #[default]
    Normal,
    /// People need the change on a full disk: it ends what runs, makes room, or decides.
    Urgent,
}

/// The channels that notify other tasks about commits of the writer.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) tails: Tails,
    /// The channels that notify tasks of decisions, by approval. There is one for each approval for
    /// which tasks wait.
    pub(crate) decisions: Mutex<HashMap<ApprovalId, watch::Sender<()>>>,
    /// The number of the last change of any approval.
    pub(crate) revision: watch::Sender<u64>,
}

impl Readers {
    pub(crate) fn publish(
        &self,
        records: &[Arc<EventRecord>],
        decided: &[ApprovalId],
        revision: u64,
    ) {
        self.tails.publish(records);
        self.revision.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        for id in decided {
            // Dropping the sender notifies its receivers.
            lock(&self.decisions).remove(id);
        }
    }
}

impl Store {
    /// Opens the database of the data directory, creates it if it is missing, and starts the
    /// writer.
    ///
    /// # Errors
    ///
    /// [`StoreError::Schema`] if the database was written by a newer version. Also fails if the
    /// database fails.
    pub async fn open(data_dir: DataDir) -> Result<Self, StoreError> {
        let reserve = DiskReserve::released(data_dir.path());
        let path = data_dir.database()?;
        let connection = schema::open_writer(path.clone()).await?;
        let pool = schema::open_readers(path).await?;
        let readers = Arc::new(Readers {
            tails: Tails::new(),
            decisions: Mutex::default(),
            revision: watch::Sender::new(0),
        });
        let (orders, queue) = mpsc::channel(QUEUE);
        let writer = Writer::new(connection, queue, Arc::clone(&readers), reserve).await?;
        let writer = Mutex::new(Some(tokio::spawn(writer.run())));
        let closed = watch::Sender::new(false);
        let uploads = UploadState::new(&data_dir);
        let alive = Arc::new(());
        let shared = Shared { orders, pool, readers, closed, writer, alive, data_dir, uploads };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The data directory.
    pub fn data_dir(&self) -> &DataDir {
        &self.shared.data_dir
    }

    /// Commits all queued changes, ends all readers of the log and closes the database. Further
    /// calls fail with [`StoreError::Closed`].
    pub async fn close(&self) {
        self.shared.closed.send_replace(true);
        // Close the readers before the writer. The last connection writes the log file back and
        // removes it, and readers cannot do this.
        self.shared.pool.close().await;
        // Sending fails if another caller has already closed the queue.
        let _ = self.shared.orders.send(Order::Close).await;
        let writer = lock(&self.shared.writer).take();
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            tracing::error!(%error, "the writer of the store panicked");
        }
    }

    /// Follows the log after a cursor: first the stored records, then new ones. No record is
    /// missing or repeated.
    pub fn follow_events(&self, scope: EventLogScope, after: u64) -> EventLogReader {
        EventLogReader::new(self.clone(), scope, after)
    }

    /// Runs `work` in a transaction and returns its value after the commit.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>> + Send + 'static,
    {
        self.queue(work).await?.await.map_err(|_| StoreError::Closed)?
    }

    /// Queues `work`. It is performed even if the caller does not wait for the answer.
    pub(crate) async fn queue<T, F>(
        &self,
        work: F,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>> + Send + 'static,
    {
        let (change, answer) = Typed::new(work);
        let order = Order::Change(Box::new(change));
        self.shared.orders.send(order).await.map_err(|_| StoreError::Closed)?;
        Ok(answer)
    }

    /// Like [`write`](Store::write), for a change that people need to make room or to end what
    /// runs. On a full disk it uses the reserved room.
    pub(crate) async fn write_urgently<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>>
            + Clone
            + Send
            + 'static,
    {
        self.write_as(WriteUrgency::Urgent, work).await
    }

    pub(crate) async fn write_as<T, F>(
        &self,
        urgency: WriteUrgency,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>>
            + Clone
            + Send
            + 'static,
    {
        self.queue_as(urgency, work).await?.await.map_err(|_| StoreError::Closed)?
    }

    /// Queues `work`. It is performed even if the caller does not wait for the answer.
    pub(crate) async fn queue_as<T, F>(
        &self,
        urgency: WriteUrgency,
        work: F,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>>
            + Clone
            + Send
            + 'static,
    {
        match urgency {
            WriteUrgency::Normal => self.queue(work).await,
            WriteUrgency::Urgent => {
                let (change, answer) = Urgent::new(work);
                let order = Order::Change(Box::new(change));
                self.shared.orders.send(order).await.map_err(|_| StoreError::Closed)?;
                Ok(answer)
            }
        }
    }

    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.shared.pool
    }

    pub(crate) fn uploads_state(&self) -> &UploadState {
        &self.shared.uploads
    }

    /// Returns a clone that a reader of the log keeps as long as it exists, so that readers can be
    /// counted.
    pub(crate) fn reader_token(&self) -> Arc<()> {
        Arc::clone(&self.shared.alive)
    }

    pub(crate) fn readers_alive(&self) -> usize {
        Arc::strong_count(&self.shared.alive).saturating_sub(1)
    }

    pub(crate) fn tails(&self) -> &Tails {
        &self.shared.readers.tails
    }

    pub(crate) fn closed(&self) -> watch::Receiver<bool> {
        self.shared.closed.subscribe()
    }

    /// A receiver of the number of the last change of any approval.
    pub(crate) fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.readers.revision.subscribe()
    }

    /// A receiver whose channel closes when the approval is decided.
    pub(crate) fn decision_signal(&self, id: ApprovalId) -> watch::Receiver<()> {
        let mut decisions = lock(&self.shared.readers.decisions);
        decisions.retain(|_, sender| sender.receiver_count() > 0);
        decisions.entry(id).or_insert_with(|| watch::Sender::new(())).subscribe()
    }
}
