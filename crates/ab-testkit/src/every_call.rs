//! Tries every call of a handle once, to check what must hold for all calls.

use ab_core::LineRange;
use ab_core::options::{
    AttributeChanges, FileAccess, FileCreationMode, ListOptions, OpenOptions, ReadOptions,
    RemoveOptions, StatOptions, WriteOptions,
};
use ab_core::path::WsPath;
use ab_core::process::{ExecRequest, ProcessId};
use ab_core::search::{
    DotfileVisibility, EntryKindFilter, IgnoreFileHandling, SearchLimits, SearchQuery, SearchTarget,
};
use ab_core::{Backend, Edit, EditOptions, Result, ScopeOptions};

/// The name of a call and its result.
pub type NamedCallResult = (&'static str, Result<()>);

/// Every call that takes a path, on `path`. Rename is tried twice, from it and to it.
pub async fn try_every_call_on(backend: &Backend, path: &str) -> Vec<NamedCallResult> {
    let create = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    let edits = [Edit::new("old", "new")];
    vec![
        ("read", backend.read(path).await.map(drop)),
        ("read_with", backend.read_with(path, ReadOptions::default()).await.map(drop)),
        ("read_many", backend.read_many(&[path]).await.remove(0).map(drop)),
        ("read_text", backend.read_text(path).await.map(drop)),
        ("lines", backend.read_lines(path, LineRange::default()).await.map(drop)),
        ("chunks", backend.read_chunks(path).await.map(drop)),
        ("write", backend.write(path, "x").await.map(drop)),
        ("write_with", backend.write_with(path, "x", WriteOptions::default()).await.map(drop)),
        ("write_many", backend.write_many(vec![(path, "x".into())]).await.remove(0).map(drop)),
        ("edit", backend.edit(path, &edits, EditOptions::default()).await.map(drop)),
        ("open to read", backend.open(path, OpenOptions::default()).await.map(drop)),
        ("open to create", backend.open(path, create).await.map(drop)),
        ("readdir", backend.readdir(path).await.map(drop)),
        ("list", backend.list(path, ListOptions::default()).await.map(drop)),
        ("mkdir", backend.mkdir(path).await.map(drop)),
        ("exists", backend.exists(path).await.map(drop)),
        ("stat", backend.stat(path).await.map(drop)),
        ("stat_with", backend.stat_with(path, StatOptions::default()).await.map(drop)),
        ("rm", backend.rm(path, RemoveOptions::recursive().missing_ok()).await.map(drop)),
        ("rename from", backend.rename(path, "elsewhere").await.map(drop)),
        ("rename to", backend.rename("kept", path).await.map(drop)),
        ("touch", backend.touch(path).await.map(drop)),
        (
            "set_attributes",
            backend.set_attributes(path, AttributeChanges::default()).await.map(drop),
        ),
        ("read_link", backend.read_link(path).await.map(drop)),
        ("symlink", backend.symlink(path, "kept").await),
        ("scope", backend.scope(path, ScopeOptions::default()).map(drop)),
    ]
}

/// Every call without a path.
pub async fn try_every_pathless_call(backend: &Backend) -> Vec<NamedCallResult> {
    vec![
        ("search", backend.search(&all_names_query()).await.map(drop)),
        ("space", backend.disk_space().await.map(drop)),
        ("connect", backend.connect().await),
        ("exec", backend.exec("true").await.map(drop)),
        ("spawn", backend.spawn(ExecRequest::shell("true")).await.map(drop)),
        ("processes", backend.detached_processes().await.map(drop)),
        ("attach", backend.attach(&ProcessId::new("none"), 0).await.map(drop)),
    ]
}

/// A search for all names.
pub fn all_names_query() -> SearchQuery {
    SearchQuery {
        root: WsPath::root(),
        target: SearchTarget::Names { glob: "**".to_owned(), kinds: EntryKindFilter::All },
        include: Vec::new(),
        exclude: Vec::new(),
        ignore: Vec::new(),
        dotfiles: DotfileVisibility::default(),
        ignore_files: IgnoreFileHandling::default(),
        limits: SearchLimits::default(),
    }
}
