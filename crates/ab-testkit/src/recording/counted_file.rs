//! An open file that counts the bytes that are read through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ab_core::Result;
use ab_core::driver::File;
use ab_core::metadata::Stat;
use ab_core::options::AttributeChanges;
use async_trait::async_trait;
use bytes::Bytes;

#[derive(Debug)]
pub(super) struct CountedFile {
    file: Box<dyn File>,
    bytes_read: Arc<AtomicU64>,
}

impl CountedFile {
    pub(super) fn new(file: Box<dyn File>, bytes_read: Arc<AtomicU64>) -> Self {
        Self { file, bytes_read }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for CountedFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let bytes = self.file.read_at(offset, length).await?;
        self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        self.file.write_at(offset, bytes).await
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length).await
    }

    async fn stat(&self) -> Result<Stat> {
        self.file.stat().await
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        self.file.set_attributes(attributes).await
    }

    async fn sync(&self) -> Result<()> {
        self.file.sync().await
    }
}
