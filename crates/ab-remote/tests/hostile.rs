//! Clients that mean no good, or are cut off: each ends by itself and takes nothing along.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ab_core::ExecOptions;
use ab_remote::sftp::packet::flags;
use ab_remote::{HostKey, SshAccess, SshConnectionEnd, SshServer, SshServerSettings};
use russh::client::{Config, connect_stream};
use russh::{ChannelMsg, Sig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Sftp, Trusting, connect, exec, log_in, open_server, packet, read_body};
use crate::stage::{Stage, within};

fn local() -> (tempfile::TempDir, ab_core::Backend, SshServer) {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let server = open_server(backend.clone());
    (directory, backend, server)
}

/// Without walls around commands, of which some make a status of a signal.
fn unwalled() -> (tempfile::TempDir, ab_core::Backend, SshServer) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = agent_backend::LocalWorkspaceConfig::new(directory.path());
    config.options.exec.isolation = ab_core::effective_policy::Isolation::None;
    config.policy.profile = agent_backend::PolicyProfile::Off;
    let backend = agent_backend::local_with(config).unwrap();
    let server = open_server(backend.clone());
    (directory, backend, server)
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_ends_the_connection_and_nothing_else() {
    let stage =
        Stage::with(|_| {}, |settings| settings.login_timeout = Duration::from_millis(700)).await;
    let garbage: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
        &[0; 100_000],
        &[0xff; 100_000],
        b"SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff\xff\xff",
        b"SSH-2.0-x\r\n\x00\x00\x00\x0c\x0a\x14",
        b"SSH-1.0-old\r\n",
        b"SSH-2.0-",
        b"",
        // A channel before anybody logged in.
        b"SSH-2.0-x\r\n\x00\x00\x00\x2c\x06\x5a\x00\x00\x00\x07session\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    for bytes in garbage {
        let mut socket = TcpStream::connect(stage.address).await.unwrap();
        // The server may be gone before it has heard all.
        let _ = socket.write_all(bytes).await;
        let mut rest = Vec::new();
        let _ = within(socket.read_to_end(&mut rest)).await;
        assert!(rest.starts_with(b"SSH-2.0-AgentBackend_"), "{bytes:?}: {rest:?}");
    }
    assert!(stage.ssh("true").await.status.success());
    let ended = stage.ended.clone();
    stage.end().await;
    let ended = ended.lock().unwrap();
    let strangers =
        ended.iter().filter(|how| matches!(how, SshConnectionEnd::NotLoggedIn(_))).count();
    assert_eq!(strangers, garbage.len(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_may_be_cut_at_any_byte() {
    let (_directory, backend, server) = local();
    backend.write("file", vec![7; 300_000]).await.unwrap();
    let mut whole = None;
    let mut limit = 0;
    while whole.is_none_or(|whole| limit < whole) {
        let (mine, near) = tokio::io::duplex(64 * 1024);
        let (far, theirs) = tokio::io::duplex(64 * 1024);
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve(theirs).await })
        };
        // So many bytes go through from the client, the first time all of them.
        let allowed = if whole.is_some() { limit } else { usize::MAX };
        let passing = tokio::spawn(async move {
            let ((mut near_in, mut near_out), (mut far_in, mut far_out)) =
                (tokio::io::split(near), tokio::io::split(far));
            let up = async {
                let (mut passed, mut buffer) = (0, vec![0; 4096]);
                while passed < allowed {
                    let most = buffer.len().min(allowed - passed);
                    match near_in.read(&mut buffer[..most]).await {
                        Ok(0) | Err(_) => break,
                        Ok(length) => {
                            if far_out.write_all(&buffer[..length]).await.is_err() {
                                break;
                            }
                            passed += length;
                        }
                    }
                }
                passed
            };
            let down = async {
                let _ = tokio::io::copy(&mut far_in, &mut near_out).await;
                std::future::pending::<usize>().await
            };
            tokio::select! { passed = up => passed, _ = down => 0 }
        });
        let client = async {
            let config = Arc::new(Config::default());
            let mut handle = connect_stream(config, mine, Trusting).await.ok()?;
            handle.authenticate_none("agent").await.ok()?;
            let mut channel = handle.channel_open_session().await.ok()?;
            channel.exec(true, "echo hello; cat").await.ok()?;
            channel.data_bytes("some input").await.ok()?;
            let sftp = handle.channel_open_session().await.ok()?;
            sftp.request_subsystem(true, "sftp").await.ok()?;
            let open = [
                vec![0, 0, 0, 5, 1, 0, 0, 0, 3],
                packet(3, 1, &[0, 0, 0, 4, b'f', b'i', b'l', b'e', 0, 0, 0, 1, 0, 0, 0, 0]),
                packet(5, 2, &read_body(&[0; 4], 0, 200_000)),
            ];
            sftp.data_bytes(open.concat()).await.ok()?;
            channel.eof().await.ok()?;
            while let Some(message) = channel.wait().await {
                if matches!(message, ChannelMsg::ExitStatus { .. }) {
                    return Some(handle);
                }
            }
            None
        };
        let reached = tokio::time::timeout(Duration::from_secs(20), client).await;
        drop(reached);
        let passed = within(passing).await.unwrap();
        if whole.is_none() {
            assert!(passed > 1000, "{passed}");
            whole = Some(passed);
        }
        within(serving).await.unwrap();
        assert_eq!(server.connection_count(), 0);
        // Every byte of the greeting, and steps that hit every packet after it.
        limit += if limit < 64 { 9 } else { 61 };
    }
    // Nothing of all that runs any more: the workspace has no process but this one.
    let (said, status) = exec(&connect(&server).await.0, "echo fine").await;
    assert_eq!((said.as_str(), status), ("fine\n", Some(0)));
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_channels_are_too_many() {
    let (_directory, backend, server) = local();
    let (handle, serving) = connect(&server).await;
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        match within(handle.channel_open_session()).await {
            Ok(channel) => open.push(channel),
            Err(russh::Error::ChannelOpenFailure(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((open.len(), refused), (ab_remote::server::DEFAULT_MAX_CHANNELS, 872));
    // One that is closed makes room.
    open.pop().unwrap().close().await.unwrap();
    let (said, _) = exec(&handle, "echo room").await;
    assert_eq!(said, "room\n");
    drop((open, handle));
    within(serving).await.unwrap();
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_that_the_server_closed_do_not_count() {
    let (_directory, backend, server) = local();
    let (handle, _serving) = connect(&server).await;
    // A refused command is over at once, so that many fit a test.
    for number in 0..2 * ab_remote::server::DEFAULT_MAX_CHANNELS {
        assert_eq!(exec(&handle, "sudo true").await.1, Some(126), "command {number}");
    }
    assert_eq!(exec(&handle, "echo room").await, ("room\n".to_owned(), Some(0)));
    backend.destroy().await.unwrap();
}

/// russh keeps something of every channel that the server closed first, so there is an end to them.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_had_its_channels_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let host_key = HostKey::generate_ephemeral("a test").unwrap();
    let settings = SshServerSettings {
        max_server_closed_channels: 3,
        ..SshServerSettings::new(host_key, SshAccess::AnyUser)
    };
    let server = SshServer::new(backend.clone(), settings);
    let (handle, serving) = connect(&server).await;
    let _sftp = Sftp::new(&handle).await;
    let mut running = within(handle.channel_open_session()).await.unwrap();
    running.exec(true, "echo on; cat").await.unwrap();
    while !matches!(within(running.wait()).await, Some(ChannelMsg::Data { .. })) {}
    for _ in 0..3 {
        assert_eq!(exec(&handle, "sudo true").await.1, Some(126));
    }
    // What runs may go on to its end.
    let refused = within(handle.channel_open_session()).await;
    assert!(matches!(refused, Err(russh::Error::ChannelOpenFailure(_))), "{refused:?}");
    running.eof().await.unwrap();
    while within(running.wait()).await.is_some() {}
    // A session of SFTP begins anew elsewhere, and keeps nobody here.
    assert!(within(handle.channel_open_session()).await.is_err());
    let ended = within(serving).await.unwrap();
    assert!(
        matches!(&ended, SshConnectionEnd::Failed(why) if why.contains("connect again")),
        "{ended}"
    );
    assert_eq!(exec(&connect(&server).await.0, "echo anew").await.0, "anew\n");
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_keep_nobody_out() {
    // Longer than any test: only room that is made lets others in.
    let stage =
        Stage::with(|_| {}, |settings| settings.login_timeout = Duration::from_secs(3600)).await;
    let mut silent = Vec::new();
    for _ in 0..ab_remote::DEFAULT_MAX_UNAUTHENTICATED_CONNECTIONS {
        let mut socket = TcpStream::connect(stage.address).await.unwrap();
        let mut first = [0; 4];
        within(socket.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"SSH-");
        silent.push(socket);
    }
    assert!(stage.ssh("true").await.status.success());
    let mut rest = Vec::new();
    within(silent[0].read_to_end(&mut rest)).await.unwrap();
    assert!(rest.ends_with(b"\r\n"), "{rest:?}");
    // Its end and that of `ssh` are told as soon as both are taken down; the others are still there.
    let told = within(async {
        loop {
            let told = stage.ended.lock().unwrap().clone();
            if told.len() >= 2 {
                return told;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.contains(&SshConnectionEnd::NotLoggedIn("it made room for another".to_owned())),
        "{told:?}"
    );
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_not_greeted_hears_goodbye() {
    let stage = Stage::new().await;
    let mut socket = TcpStream::connect(stage.address).await.unwrap();
    let mut name = Vec::new();
    while !name.ends_with(b"\r\n") {
        name.push(within(socket.read_u8()).await.unwrap());
    }
    let ended = stage.ended.clone();
    stage.end().await;
    let mut packet = Vec::new();
    within(socket.read_to_end(&mut packet)).await.unwrap();
    let length = u32::from_be_bytes(*packet.first_chunk().unwrap()) as usize;
    assert_eq!((packet.len(), packet[5]), (4 + length, 1), "{packet:?}");
    let text = String::from_utf8_lossy(&packet);
    assert!(text.contains("Server shutting down"), "{text:?}");
    assert_eq!(*ended.lock().unwrap(), [SshConnectionEnd::ShutDown]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_knows_no_signals_gets_a_status() {
    let (_directory, backend, server) = unwalled();
    for (name, expected) in [("ssh2js1.17.0", Some(137)), ("OpenSSH_9.2", None)] {
        let (mine, theirs) = tokio::io::duplex(256 * 1024);
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(theirs).await });
        let id = russh::SshId::Standard(format!("SSH-2.0-{name}").into());
        let config = Config { client_id: id, ..Config::default() };
        let handle = log_in(mine, config).await;
        assert_eq!(exec(&handle, "kill -KILL $$").await.1, expected, "{name}");
    }
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_nobody_knows_are_refused() {
    let (_directory, backend, server) = local();
    let (handle, _serving) = connect(&server).await;
    assert!(within(handle.tcpip_forward("127.0.0.1", 0)).await.is_err());
    assert!(
        within(handle.channel_open_direct_tcpip("127.0.0.1", 1, "127.0.0.1", 1)).await.is_err()
    );
    assert!(within(handle.streamlocal_forward("/tmp/ab-test-forwarded")).await.is_err());
    assert!(within(handle.channel_open_direct_streamlocal("/run/docker.sock")).await.is_err());
    let mut channel = within(handle.channel_open_session()).await.unwrap();
    channel.request_x11(true, false, "x", "y", 0).await.unwrap();
    channel.agent_forward(true).await.unwrap();
    channel.request_subsystem(true, "netconf").await.unwrap();
    channel.set_env(true, "AGENT_BACKEND_ROOT", "x").await.unwrap();
    channel.set_env(true, "1x", "x").await.unwrap();
    channel.exec(true, &b"echo \xff"[..]).await.unwrap();
    channel.set_env(true, "FINE", "yes").await.unwrap();
    channel.exec(true, "echo $FINE").await.unwrap();
    channel.exec(true, "echo twice").await.unwrap();
    let (mut answers, mut said) = (Vec::new(), Vec::new());
    while let Some(message) = within(channel.wait()).await {
        match message {
            ChannelMsg::Success => answers.push(true),
            ChannelMsg::Failure => answers.push(false),
            ChannelMsg::Data { data } => said.extend_from_slice(&data),
            _ => {}
        }
    }
    assert_eq!(answers, [false, false, false, false, false, false, true, true, false]);
    assert_eq!(said, b"yes\n");
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = agent_backend::LocalWorkspaceConfig::new(directory.path());
    config.options.exec.isolation = agent_backend::Isolation::None;
    let backend = agent_backend::local_with(config).unwrap();
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    for (line, signal, expect) in [
        ("trap 'exit 9' USR2; echo on; while :; do sleep 1000 & wait $!; done", "USR2", Ok(9)),
        ("echo on; exec sleep 1000", "TERM", Err("TERM")),
        ("echo on; exec sleep 1000", "KILL", Err("KILL")),
    ] {
        let mut channel = within(handle.channel_open_session()).await.unwrap();
        channel.exec(true, line).await.unwrap();
        let mut end = None;
        while let Some(message) = within(channel.wait()).await {
            match message {
                ChannelMsg::Data { data } => {
                    assert_eq!(data, "on\n");
                    let signal = match signal {
                        "TERM" => Sig::TERM,
                        "KILL" => Sig::KILL,
                        other => Sig::Custom(other.to_owned()),
                    };
                    channel.signal(signal).await.unwrap();
                }
                ChannelMsg::ExitStatus { exit_status } => end = Some(Ok(exit_status)),
                ChannelMsg::ExitSignal { signal_name, .. } => {
                    end = Some(Err(format!("{signal_name:?}")));
                }
                _ => {}
            }
        }
        assert_eq!(end, Some(expect.map_err(str::to_owned)), "{line}");
    }
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_follows_its_window() {
    let (_directory, backend, server) = local();
    let (handle, _serving) = connect(&server).await;
    let mut channel = within(handle.channel_open_session()).await.unwrap();
    channel.request_pty(true, "", 90, 30, 0, 0, &[]).await.unwrap();
    let line = "trap 'stty size; exit 5' WINCH; stty size; echo $TERM; \
        while :; do sleep 1000 & wait $!; done";
    channel.exec(true, line).await.unwrap();
    let (mut said, mut status, mut told) = (String::new(), None, false);
    while let Some(message) = within(channel.wait()).await {
        match message {
            ChannelMsg::Data { data } => said.push_str(std::str::from_utf8(&data).unwrap()),
            ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
            _ => {}
        }
        if said.ends_with("xterm-256color\r\n") && !told {
            told = true;
            channel.window_change(120, 0, 0, 0).await.unwrap();
        }
    }
    assert_eq!((said.as_str(), status), ("30 90\r\nxterm-256color\r\n24 120\r\n", Some(5)));
    backend.destroy().await.unwrap();
}

/// Other tests set shorter times; these are the ones that docs/security.md names.
#[test]
fn bounds_before_the_login_have_their_defaults() {
    let access = SshAccess::default();
    let settings = SshServerSettings::new(HostKey::generate_ephemeral("a test").unwrap(), access);
    assert_eq!(settings.login_timeout, Duration::from_secs(30));
    assert_eq!(settings.refused_login_delay, Duration::from_millis(500));
    assert_eq!((settings.max_login_attempts, settings.max_channels), (6, 128));
    assert_eq!(ab_remote::DEFAULT_MAX_UNAUTHENTICATED_CONNECTIONS, 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn guessing_is_slow_and_ends() {
    let stage =
        Stage::with(|_| {}, |settings| settings.refused_login_delay = Duration::from_millis(100))
            .await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let mut handle = connect_stream(Arc::new(Config::default()), stream, Trusting).await.unwrap();
    let started = Instant::now();
    let mut refused = 0;
    while let Ok(result) = within(handle.authenticate_password("agent", "wrong")).await {
        assert!(!result.success());
        refused += 1;
    }
    // What the client makes of the last word, which is goodbye, may look like one more.
    assert!((6..=7).contains(&refused), "{refused}");
    assert!(started.elapsed() >= Duration::from_millis(100) * 5, "{:?}", started.elapsed());

    let stream = TcpStream::connect(stage.address).await.unwrap();
    let mut handle = connect_stream(Arc::new(Config::default()), stream, Trusting).await.unwrap();
    assert!(handle.authenticate_password("agent", "correct horse").await.unwrap().success());
    assert_eq!(exec(&handle, "echo in").await.0, "in\n");
    drop(handle);
    stage.end().await;
}

/// A client that asks for much and reads nothing gets what fits, and costs no more than that.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_costs_little() {
    let (_directory, backend, server) = local();
    backend.write("large", vec![7; 64 * 1024 * 1024]).await.unwrap();
    let (mine, theirs) = tokio::io::duplex(64 * 1024);
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(theirs).await })
    };
    let config = Config { window_size: 1024 * 1024, ..Config::default() };
    let handle = log_in(mine, config).await;
    let mut sftp = Sftp::new(&handle).await;
    let file = sftp.open("large", flags::OPEN_FLAG_READ).await;
    let mut busy = within(handle.channel_open_session()).await.unwrap();
    busy.exec(true, "exec 9>lock; flock 9; yes").await.unwrap();
    while !matches!(within(busy.wait()).await, Some(ChannelMsg::Data { .. })) {}
    let before = resident();
    // Half a gibibyte is asked for; one mebibyte of window is all there is.
    let requests: Vec<u8> =
        (0..2000).flat_map(|id| packet(5, 1000 + id, &read_body(&file, 0, 260_096))).collect();
    sftp.raw(&requests).await;
    // Another connection is served meanwhile, and sees the first one's bound.
    let (other, _serving) = connect(&server).await;
    for _ in 0..20 {
        assert_eq!(exec(&other, "echo fine").await.0, "fine\n");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 * 1024 * 1024, "{grown} bytes");
    drop((sftp, busy, handle));
    within(serving).await.unwrap();
    let options = ExecOptions { timeout: Some(Duration::from_secs(20)), ..ExecOptions::default() };
    backend.exec_with("exec 9>lock; flock 9", options).await.unwrap();
    backend.destroy().await.unwrap();
}

/// Far more requests than any queue holds, sent before the first answer is read: the client's
/// window adjustments come after them, and must be heard all the same.
#[tokio::test(flavor = "multi_thread")]
async fn deep_read_ahead_does_not_lock_up() {
    const REQUESTS: u32 = 60_000;
    let (_directory, backend, server) = local();
    backend.write("file", vec![7; 4096]).await.unwrap();
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let file = sftp.open("file", flags::OPEN_FLAG_READ).await;
    let (mut reader, writer) = sftp.channel.split();
    let asking = tokio::spawn(async move {
        for id in 0..REQUESTS {
            writer.data_bytes(packet(5, id, &read_body(&file, 0, 4096))).await.unwrap();
        }
    });
    let mut received = 0;
    while received < REQUESTS as usize * (4096 + 13) {
        if let ChannelMsg::Data { data } = within(reader.wait()).await.unwrap() {
            received += data.len();
        }
    }
    within(asking).await.unwrap();
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_waiting_ends_the_connection() {
    let (_directory, backend, server) = local();
    let (mine, theirs) = tokio::io::duplex(64 * 1024);
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(theirs).await })
    };
    let handle = log_in(mine, Config::default()).await;
    let mut channel = within(handle.channel_open_session()).await.unwrap();
    channel.exec(true, "exec 9>lock; flock 9; echo on; exec sleep 1000").await.unwrap();
    while !matches!(within(channel.wait()).await, Some(ChannelMsg::Data { .. })) {}
    let mut sftp = Sftp::new(&handle).await;
    assert_eq!(sftp.open("lock", flags::OPEN_FLAG_READ).await.len(), 4);
    serving.abort();
    let _ = serving.await;
    let options = ExecOptions { timeout: Some(Duration::from_secs(20)), ..ExecOptions::default() };
    backend.exec_with("exec 9>lock; flock 9", options).await.unwrap();
    while within(channel.wait()).await.is_some() {}
    assert_eq!(server.connection_count(), 0);
    backend.destroy().await.unwrap();
}

/// A command that does not read its input is held back, and nobody else is.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_holds_up_nobody_else() {
    const INPUT: usize = 40 * 1024 * 1024;
    const PIECE: usize = 128 * 1024;
    let (directory, backend, server) = local();
    let (handle, _serving) = connect(&server).await;
    let channel = within(handle.channel_open_session()).await.unwrap();
    let line = "echo on; while [ ! -e go ]; do sleep 0.1; done; wc -c";
    channel.exec(true, line).await.unwrap();
    let (mut reader, writer) = channel.split();
    while !matches!(within(reader.wait()).await, Some(ChannelMsg::Data { .. })) {}
    let feeding = tokio::spawn(async move {
        for _ in 0..INPUT / PIECE {
            writer.data_bytes(vec![b'x'; PIECE]).await.unwrap();
        }
        writer.eof().await.unwrap();
    });
    // Far more than the windows that were granted before it was held back.
    let mut sftp = Sftp::new(&handle).await;
    let file = sftp.open("file", flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE).await;
    for at in 0..INPUT / PIECE {
        let offset = (at * PIECE) as u64;
        assert_eq!(sftp.write(&file, offset, &vec![b'y'; PIECE]).await, 0, "{at}");
    }
    assert!(!feeding.is_finished());
    fs::write(directory.path().join("go"), "").unwrap();
    let mut said = Vec::new();
    while let Some(message) = within(reader.wait()).await {
        if let ChannelMsg::Data { data } = message {
            said.extend_from_slice(&data);
        }
    }
    assert_eq!(String::from_utf8(said).unwrap().trim(), INPUT.to_string());
    within(feeding).await.unwrap();
    backend.destroy().await.unwrap();
}

/// Variables wait for a command, but not without bound.
#[tokio::test(flavor = "multi_thread")]
async fn variables_are_bounded_by_their_bytes() {
    let (_directory, backend, server) = local();
    let (handle, _serving) = connect(&server).await;
    let value = "x".repeat(60 * 1024);
    let (mut channels, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let mut channel = within(handle.channel_open_session()).await.unwrap();
        let mut fit = 0;
        for number in 0..6 {
            channel.set_env(true, format!("V{number}"), value.as_str()).await.unwrap();
            match within(channel.wait()).await.unwrap() {
                ChannelMsg::Success => fit += 1,
                ChannelMsg::Failure => {}
                other => panic!("{other:?}"),
            }
        }
        taken.push(fit);
        channels.push(channel);
    }
    // 256 KiB on a channel, a mebibyte on the connection.
    assert_eq!(taken, [4, 4, 4, 4, 1, 0, 0, 0]);
    // Another value for one that is there takes no more room, and what runs makes room.
    let mut channel = channels.remove(0);
    channel.set_env(true, "V0", "short").await.unwrap();
    assert!(matches!(within(channel.wait()).await, Some(ChannelMsg::Success)));
    channel.exec(true, "echo $V0").await.unwrap();
    let mut said = Vec::new();
    while let Some(message) = within(channel.wait()).await {
        if let ChannelMsg::Data { data } = message {
            said.extend_from_slice(&data);
        }
    }
    assert_eq!(said, b"short\n");
    channels[5].set_env(true, "V0", value).await.unwrap();
    assert!(matches!(within(channels[5].wait()).await, Some(ChannelMsg::Success)));
    backend.destroy().await.unwrap();
}
