//! SFTP packet by packet: what clients may say beside what OpenSSH's do.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ab_core::effective_policy::EffectivePolicyControl;
use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::{Backend, BackendOptions, Call, CallOutcome, Guard, Guards, MemoryDriver, Verb};
use ab_remote::sftp::packet::{MAX_PACKET_DATA_BYTES, flags};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::client::{
    ATTRS, EXTENDED_REPLY, HANDLE, NAME, STATUS, Sftp, connect, open_server, packet, read_body,
    string, write_body,
};

const OK: u32 = 0;
const EOF: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const PERMISSION_DENIED: u32 = 3;
const FAILURE: u32 = 4;
const BAD_MESSAGE: u32 = 5;
const UNSUPPORTED: u32 = 8;

fn local() -> (TempDir, Backend) {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    (directory, backend)
}

#[tokio::test]
async fn flags_mean_what_they_say() {
    for backend in [local().1, agent_backend::memory()] {
        let server = open_server(backend.clone());
        let (handle, _serving) = connect(&server).await;
        let mut sftp = Sftp::new(&handle).await;
        let file = sftp.open("a/b/new", flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE).await;
        assert_eq!(sftp.write(&file, 0, b"hello").await, OK);
        assert_eq!(sftp.write(&file, 7, b"!").await, OK);
        assert_eq!(sftp.read(&file, 0, 10).await.status(), PERMISSION_DENIED);
        assert_eq!(sftp.close(&file).await, OK);
        assert_eq!(backend.read("a/b/new").await.unwrap(), "hello\0\0!");
        assert_eq!(sftp.close(&file).await, FAILURE);

        let file = sftp
            .open(
                "a/b/new",
                flags::OPEN_FLAG_APPEND | flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_READ,
            )
            .await;
        assert_eq!(sftp.write(&file, 0, b" more").await, OK);
        assert_eq!(sftp.read(&file, 5, 100).await.data(), "\0\0! more");
        assert_eq!(sftp.read(&file, 13, 100).await.status(), EOF);
        sftp.close(&file).await;

        let exclusive =
            flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE | flags::OPEN_FLAG_EXCLUSIVE;
        let body = [string(b"a/b/new"), exclusive.to_be_bytes().to_vec(), vec![0; 4]].concat();
        assert_eq!(sftp.ask(3, &body).await.status(), FAILURE);
        let body =
            [string(b"nope"), flags::OPEN_FLAG_WRITE.to_be_bytes().to_vec(), vec![0; 4]].concat();
        assert_eq!(sftp.ask(3, &body).await.status(), NO_SUCH_FILE);
        let truncate = flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_TRUNCATE;
        let file = sftp.open("a/b/new", truncate).await;
        let stat = sftp.ask(8, &string(&file)).await;
        assert_eq!(
            (stat.kind, &stat.body[..12]),
            (ATTRS, &[0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0][..])
        );
        assert_eq!(backend.read("a/b/new").await.unwrap(), "");
    }
}

#[tokio::test]
async fn sizes_and_times_can_be_set_by_handle_and_by_path() {
    let (_directory, backend) = local();
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    backend.write("file", "0123456789").await.unwrap();
    let size = |size: u64| [1u32.to_be_bytes().to_vec(), size.to_be_bytes().to_vec()].concat();
    let times = [8u32, 1_000_000_000, 1_000_000_001].map(u32::to_be_bytes).concat();
    let by_path = [string(b"file"), size(4)].concat();
    assert_eq!(sftp.ask(9, &by_path).await.status(), OK);
    assert_eq!(backend.read("file").await.unwrap(), "0123");
    let file = sftp.open("file", flags::OPEN_FLAG_WRITE).await;
    assert_eq!(sftp.ask(10, &[string(&file), size(2)].concat()).await.status(), OK);
    assert_eq!(sftp.ask(10, &[string(&file), times].concat()).await.status(), OK);
    let stat = backend.stat("file").await.unwrap();
    assert_eq!(stat.size, 2);
    let since = stat.modified.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_000_000_001);
    let owner = [2u32, 0, 0].map(u32::to_be_bytes).concat();
    assert_eq!(sftp.ask(10, &[string(&file), owner].concat()).await.status(), PERMISSION_DENIED);
}

#[tokio::test]
async fn requests_sent_ahead_take_effect_in_order() {
    let (_directory, backend) = local();
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let file = sftp
        .open("file", flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_READ | flags::OPEN_FLAG_CREATE)
        .await;
    // Everything at once: many writes, one over the others, a cut, a look, the end, another look.
    let mut all = Vec::new();
    for at in 0..50u64 {
        all.extend(packet(6, 100 + at as u32, &write_body(&file, at * 1000, &[b'x'; 1000])));
    }
    all.extend(packet(6, 200, &write_body(&file, 500, b"overwritten")));
    all.extend(packet(5, 201, &read_body(&file, 498, 15)));
    all.extend(packet(4, 202, &string(&file)));
    all.extend(packet(5, 203, &read_body(&file, 0, 1)));
    all.extend(packet(17, 204, &string(b"file")));
    all.extend(packet(14, 205, &[string(b"dir"), vec![0; 4]].concat()));
    all.extend(packet(18, 206, &[string(b"file"), string(b"dir/moved")].concat()));
    all.extend(packet(17, 207, &string(b"dir/moved")));
    all.extend(packet(13, 208, &string(b"dir/moved")));
    all.extend(packet(15, 209, &string(b"dir")));
    sftp.raw(&all).await;
    let mut answers = std::collections::HashMap::new();
    for _ in 0..60 {
        let answer = sftp.receive().await.unwrap();
        answers.insert(answer.id, answer);
    }
    for id in (100..150).chain([200, 202, 205, 206, 208, 209]) {
        assert_eq!(answers[&id].status(), OK, "{id}: {:?}", answers[&id]);
    }
    assert_eq!(answers[&201].data(), "xxoverwrittenxx");
    assert_eq!(answers[&203].status(), FAILURE);
    for id in [204, 207] {
        let mut fields = answers[&id].fields();
        assert_eq!(
            (answers[&id].kind, fields.read_u32(), fields.read_u64()),
            (ATTRS, Ok(13), Ok(50_000))
        );
    }
    assert_eq!(backend.readdir(".").await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn odd_requests_are_refused_one_by_one() {
    let (directory, backend) = local();
    fs::write(directory.path().join("file"), vec![7; 400_000]).unwrap();
    let server = open_server(backend);
    let (handle, serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let not_text = string(b"caf\xe9");
    for (kind, body, status) in [
        // Names that are no text.
        (17, not_text.clone(), FAILURE),
        (7, not_text.clone(), FAILURE),
        (11, not_text.clone(), FAILURE),
        (13, not_text.clone(), FAILURE),
        (16, not_text.clone(), FAILURE),
        (3, [not_text.clone(), vec![0, 0, 0, 10, 0, 0, 0, 0]].concat(), FAILURE),
        (18, [string(b"file"), not_text.clone()].concat(), FAILURE),
        // Paths that lead out.
        (17, string(b"../x"), PERMISSION_DENIED),
        (16, string(b"/../.."), PERMISSION_DENIED),
        (17, string(b"a\0b"), FAILURE),
        (17, string(&[b'a'; 5000]), FAILURE),
        // Fields that are not there.
        (17, vec![], BAD_MESSAGE),
        (17, vec![0, 0, 0, 9, b'x'], BAD_MESSAGE),
        (17, u32::MAX.to_be_bytes().to_vec(), BAD_MESSAGE),
        (3, string(b"file"), BAD_MESSAGE),
        (9, [string(b"file"), vec![0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]].concat(), BAD_MESSAGE),
        (200, string(b"call@agent-backend"), BAD_MESSAGE),
        // Handles that are none.
        (5, read_body(b"", 0, 1), FAILURE),
        (5, read_body(&[0xff; 4], 0, 1), FAILURE),
        (4, string(&[1; 300]), FAILURE),
        (12, string(b"nope"), FAILURE),
        // Kinds that are none.
        (0, vec![], UNSUPPORTED),
        (21, vec![1, 2, 3], UNSUPPORTED),
        (101, vec![0; 12], UNSUPPORTED),
        (255, vec![], UNSUPPORTED),
        (200, string(b"hardlink@openssh.com"), UNSUPPORTED),
        (200, string(b"\xff\xfe"), UNSUPPORTED),
    ] {
        let answer = sftp.ask(kind, &body).await;
        assert_eq!(answer.status(), status, "{kind} {body:?} {answer:?}");
    }
    let file = sftp.open("file", flags::OPEN_FLAG_READ).await;
    assert_eq!(sftp.read(&file, 0, u32::MAX).await.data().len(), MAX_PACKET_DATA_BYTES);
    assert_eq!(sftp.read(&file, u64::MAX, 1).await.status(), EOF);
    assert_eq!(sftp.read(&file, 0, 0).await.data(), "");
    assert_eq!(sftp.ask(12, &string(&file)).await.status(), FAILURE);
    assert_eq!(sftp.ask(16, &string(b"")).await.kind, NAME);
    drop(sftp);
    drop(handle);
    serving.await.unwrap();
}

#[tokio::test]
async fn what_is_no_sftp_ends_the_channel() {
    let (_directory, backend) = local();
    let server = open_server(backend);
    let (handle, _serving) = connect(&server).await;
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 0],
        &[0, 0, 0, 1, 17],
        // A request before the version.
        &[0, 0, 0, 9, 17, 0, 0, 0, 1, 0, 0, 0, 0],
        // The version twice.
        &[0, 0, 0, 5, 1, 0, 0, 0, 3, 0, 0, 0, 5, 1, 0, 0, 0, 3],
    ] {
        let mut sftp = Sftp::silent(&handle).await;
        sftp.raw(bytes).await;
        assert_eq!(sftp.ended().await, Some(1), "{bytes:?}");
    }
    // Half a packet and the end is only the end.
    let mut sftp = Sftp::new(&handle).await;
    sftp.raw(&[0, 0, 1, 0, 17, 0]).await;
    sftp.channel.eof().await.unwrap();
    assert_eq!(sftp.ended().await, Some(0));
    // The connection has other channels, which do not mind.
    let mut sftp = Sftp::new(&handle).await;
    assert_eq!(sftp.ask(16, &string(b".")).await.kind, NAME);
}

#[tokio::test]
async fn links_are_made_in_the_order_of_the_client() {
    let (directory, backend) = local();
    let server = open_server(backend);
    for (name, first, second) in
        [("OpenSSH_9.9", "target", "link"), ("ssh2js1.17", "link", "target")]
    {
        let (mine, theirs) = tokio::io::duplex(64 * 1024);
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve(theirs).await })
        };
        let config = russh::client::Config {
            client_id: russh::SshId::Standard(format!("SSH-2.0-{name}").into()),
            ..Default::default()
        };
        let handle = crate::client::log_in(mine, config).await;
        let mut sftp = Sftp::new(&handle).await;
        let body = [string(first.as_bytes()), string(second.as_bytes())].concat();
        assert_eq!(sftp.ask(20, &body).await.status(), OK);
        let link = directory.path().join("link");
        assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("target"), "{name}");
        let answer = sftp.ask(19, &string(b"link")).await;
        let mut fields = answer.fields();
        assert_eq!((fields.read_u32(), fields.read_string().unwrap()), (Ok(1), "target".into()));
        fs::remove_file(link).unwrap();
        drop((sftp, handle));
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn handles_are_bounded_and_end_with_the_connection() {
    let (directory, backend) = local();
    backend.write("file", "x").await.unwrap();
    let file = directory.path().canonicalize().unwrap().join("file");
    // Of this file only: other tests have files too.
    let descriptors = || {
        let all = fs::read_dir("/proc/self/fd").unwrap();
        let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| *link == file).count()
    };
    let server = open_server(backend);
    let (handle, serving) = connect(&server).await;
    // Two channels of one connection share the bound.
    let mut channels = [Sftp::new(&handle).await, Sftp::new(&handle).await];
    let body = [string(b"file"), flags::OPEN_FLAG_READ.to_be_bytes().to_vec(), vec![0; 4]].concat();
    let mut opened = 0;
    for _ in 0..5_000 {
        for sftp in &mut channels {
            let answer = sftp.ask(3, &body).await;
            match answer.kind {
                HANDLE => opened += 1,
                STATUS => assert_eq!(answer.status(), FAILURE),
                kind => panic!("{kind}"),
            }
        }
    }
    assert_eq!(opened, 1000);
    assert_eq!(descriptors(), 1000);
    // One that is closed makes room for another.
    assert_eq!(channels[0].close(&[0, 0, 0, 0]).await, OK);
    assert_eq!(channels[1].ask(3, &body).await.kind, HANDLE);
    let limits = channels[0].extended("limits@openssh.com", &[]).await;
    let mut fields = limits.fields();
    assert_eq!(limits.kind, EXTENDED_REPLY);
    let told = [(); 4].map(|()| fields.read_u64().unwrap());
    assert_eq!(told, [262_144, 260_096, 260_096, 1000]);
    drop(channels);
    drop(handle);
    serving.await.unwrap();
    assert_eq!(descriptors(), 0);
}

#[tokio::test]
async fn long_directories_come_in_parts() {
    let (directory, backend) = local();
    for number in 0..3000 {
        fs::write(directory.path().join(format!("file-{number:05}")), "x").unwrap();
    }
    let server = open_server(backend);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let answer = sftp.ask(11, &string(b"/")).await;
    let dir = answer.fields().read_string().unwrap();
    let mut names = Vec::new();
    loop {
        let answer = sftp.ask(12, &string(&dir)).await;
        if answer.kind == STATUS {
            assert_eq!(answer.status(), EOF);
            break;
        }
        assert!(answer.body.len() < 80_000);
        let mut fields = answer.fields();
        for _ in 0..fields.read_u32().unwrap() {
            names.push(fields.read_string().unwrap());
            let long = fields.read_string().unwrap();
            assert!(long.starts_with(b"-rw"), "{long:?}");
            assert_eq!(fields.read_u32(), Ok(13));
            fields.read_u64().unwrap();
            for _ in 0..3 {
                fields.read_u32().unwrap();
            }
        }
        assert!(fields.is_empty());
    }
    assert_eq!(names.len(), 3000);
    assert!(names.is_sorted());
    assert_eq!(sftp.ask(12, &string(&dir)).await.status(), EOF);
    assert_eq!(sftp.ask(5, &read_body(&dir, 0, 1)).await.status(), FAILURE);
}

#[tokio::test]
async fn a_scope_is_all_there_is() {
    let (directory, backend) = local();
    backend.write("secret", "outside").await.unwrap();
    backend.write("tenants/a/mine", "inside").await.unwrap();
    let root = backend.info().root_aliases[0].clone();
    let scope = backend.scope("tenants/a", ab_core::ScopeOptions::default()).unwrap();
    let server = open_server(scope);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    for path in ["mine", "/mine", &format!("{root}/tenants/a/mine")] {
        let file = sftp.open(path, flags::OPEN_FLAG_READ).await;
        assert_eq!(sftp.read(&file, 0, 100).await.data(), "inside", "{path}");
    }
    assert_eq!(sftp.ask(17, &string(b"../../secret")).await.status(), PERMISSION_DENIED);
    assert_eq!(sftp.ask(17, &string(format!("{root}/secret").as_bytes())).await.kind, STATUS);
    let answer = sftp.ask(16, &string(b"x/../y")).await;
    let mut fields = answer.fields();
    assert_eq!((fields.read_u32(), fields.read_string().unwrap()), (Ok(1), "/y".into()));
    let (said, status) = crate::client::exec(&handle, "cat mine; ls; cat ../../secret").await;
    assert!(!said.contains("outside"), "{said}");
    assert_ne!(status, Some(0));
    let (said, status) = crate::client::exec(&handle, "cat mine; touch made").await;
    assert_eq!((said.as_str(), status), ("inside", Some(0)));
    assert!(directory.path().join("tenants/a/made").exists());
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn real_paths_have_no_links() {
    let (directory, backend) = local();
    let root = directory.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), "").unwrap();
    for (link, target) in [
        ("to-dir", "a/b"),
        ("a/to-file", "../to-dir/./file"),
        ("whole", root.join("a").to_str().unwrap()),
        ("missing", "a/none"),
        ("out", "../../etc"),
        ("far", "/etc/passwd"),
        ("round", "round"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    let server = open_server(backend);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    for (asked, real) in [
        ("", "/"),
        (".", "/"),
        ("a/b/file", "/a/b/file"),
        ("to-dir", "/a/b"),
        ("to-dir/file", "/a/b/file"),
        ("to-dir/new/deep", "/a/b/new/deep"),
        ("a/to-file", "/a/b/file"),
        ("whole/to-file", "/a/b/file"),
        ("missing", "/a/none"),
        ("none/at/all", "/none/at/all"),
        // What leads nowhere that may be shown stays as it is.
        ("out/passwd", "/out/passwd"),
        ("far", "/far"),
        ("round/and/round", "/round/and/round"),
    ] {
        let answer = sftp.ask(16, &string(asked.as_bytes())).await;
        assert_eq!(answer.kind, NAME, "{asked}: {answer:?}");
        let mut fields = answer.fields();
        assert_eq!(fields.read_u32().unwrap(), 1);
        assert_eq!(fields.read_string().unwrap(), real, "{asked}");
    }
}

/// Clients use directories as locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_made_by_one_client() {
    let (_directory, backend) = local();
    let server = open_server(backend);
    let mut clients = Vec::new();
    for _ in 0..4 {
        let (handle, serving) = connect(&server).await;
        clients.push((Sftp::new(&handle).await, handle, serving));
    }
    for round in 0..200 {
        let body = [string(format!("lock-{round}").as_bytes()), vec![0; 4]].concat();
        let asking = clients.iter_mut().map(|client| client.0.ask(14, &body));
        let answers = futures_util::future::join_all(asking).await;
        let made = answers.iter().filter(|answer| answer.status() == OK).count();
        assert_eq!(made, 1, "round {round}: {answers:?}");
    }
}

/// Counts the listings that are made, and lets none of them go on.
#[derive(Debug)]
struct Listings {
    begun: AtomicUsize,
    go: Semaphore,
}

impl Guard for Listings {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        if call.verb != Verb::List {
            return GuardDecision::ALLOW;
        }
        GuardDecision::Pending(Box::pin(async {
            self.begun.fetch_add(1, Ordering::AcqRel);
            drop(self.go.acquire().await);
            Ok(())
        }))
    }

    fn check_file_size(&self, _: &Call<'_>, _: u64) -> ab_core::Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _: &Call<'_>, _: &CallOutcome<'_>) {}
}

#[tokio::test]
async fn few_listings_are_made_at_a_time() {
    const ASKED: u32 = 40;
    let listings = Arc::new(Listings { begun: 0.into(), go: Semaphore::new(0) });
    let guards = Guards { limits: vec![listings.clone()], ..Default::default() };
    let memory = Arc::new(MemoryDriver::new());
    let assembly = BackendOptions { guards, ..Default::default() };
    let backend = Backend::with_options(memory, assembly);
    backend.write("file", "x").await.unwrap();
    let server = open_server(backend);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let mut directories = Vec::new();
    for _ in 0..ASKED {
        directories.push(sftp.ask(11, &string(b"/")).await.fields().read_string().unwrap());
    }
    for directory in &directories {
        sftp.send(12, &string(directory)).await;
    }
    // Requests are begun in order: when this one is answered, the others were.
    assert_eq!(sftp.ask(17, &string(b"file")).await.kind, ATTRS);
    let begun = listings.begun.load(Ordering::Acquire);
    assert!((1..=2).contains(&begun), "{begun} listings at once");
    listings.go.add_permits(1);
    for _ in 0..ASKED {
        assert_eq!(sftp.receive().await.unwrap().kind, NAME);
    }
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, backend) = local();
    backend.write("file", "0123456789").await.unwrap();
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    // Size zero, and an owner.
    let both = [3u32, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let by_path = [string(b"file"), both.clone()].concat();
    assert_eq!(sftp.ask(9, &by_path).await.status(), PERMISSION_DENIED);
    let file = sftp.open("file", flags::OPEN_FLAG_WRITE).await;
    assert_eq!(sftp.ask(10, &[string(&file), both].concat()).await.status(), PERMISSION_DENIED);
    assert_eq!(backend.read("file").await.unwrap(), "0123456789");
    // Of a mode only the permissions are taken, and the times beside it are.
    let mode_and_times =
        [12u32, 0o107_751, 1_000_000_000, 1_000_000_001].map(u32::to_be_bytes).concat();
    assert_eq!(sftp.ask(9, &[string(b"file"), mode_and_times].concat()).await.status(), OK);
    let found = fs::metadata(directory.path().join("file")).unwrap();
    assert_eq!(found.permissions().mode(), 0o100_751);
    let since = found.modified().unwrap().duration_since(std::time::SystemTime::UNIX_EPOCH);
    assert_eq!(since.unwrap().as_secs(), 1_000_000_001);
    // Asking for nothing is asking whether it is there.
    let nothing = |path: &[u8]| [string(path), vec![0; 4]].concat();
    assert_eq!(sftp.ask(9, &nothing(b"file")).await.status(), OK);
    assert_eq!(sftp.ask(9, &nothing(b"missing")).await.status(), NO_SUCH_FILE);
    let room = sftp.extended("statvfs@openssh.com", &string(b"no/such")).await;
    assert_eq!(room.status(), NO_SUCH_FILE);
    assert_eq!(sftp.extended("statvfs@openssh.com", &string(b"/")).await.kind, EXTENDED_REPLY);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_that_is_no_text_is_missed_aloud() {
    use std::os::unix::ffi::OsStrExt as _;
    let (directory, backend) = local();
    fs::write(directory.path().join("plain"), "x").unwrap();
    let strange = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(directory.path().join(strange), "x").unwrap();
    let server = open_server(backend);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let dir = sftp.ask(11, &string(b"/")).await.fields().read_string().unwrap();
    let answer = sftp.ask(12, &string(&dir)).await;
    let mut fields = answer.fields();
    assert_eq!((answer.kind, fields.read_u32()), (NAME, Ok(2)));
    assert_eq!(fields.read_string().unwrap(), "plain");
    fields.read_string().unwrap();
    for _ in 0..6 {
        fields.read_u32().unwrap();
    }
    // A file, so that clients that copy a directory try it.
    let shown = "caf\u{fffd}";
    assert_eq!(fields.read_string().unwrap(), shown);
    fields.read_string().unwrap();
    assert_eq!((fields.read_u32(), fields.read_u32()), (Ok(4), Ok(0o100_000)));
    assert!(fields.is_empty());
    let open = [string(shown.as_bytes()), vec![0, 0, 0, 1, 0, 0, 0, 0]].concat();
    assert_eq!(sftp.ask(3, &open).await.status(), NO_SUCH_FILE);
    assert_eq!(sftp.ask(12, &string(&dir)).await.status(), EOF);
}
