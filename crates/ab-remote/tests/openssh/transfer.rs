//! `sftp`, `scp`, `rsync`, `sshfs`: files both ways.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use ab_testkit::host;
use tokio::time::timeout;

use crate::stage::{Stage, finish, has, patiently_fed, text, within};

/// Names that mean something to somebody, and are only names.
const ODD: &[&str] = &[
    "plain",
    "with space",
    "  two  ",
    "quote'd \"twice\"",
    "$(touch gone)`x`",
    "-rf",
    "star*?[a]",
    "back\\slash",
    "new\nline",
    "ünï cödé ☃",
    ".hidden",
    "semi;colon&amp|pipe",
];

fn make_tree(root: &Path) {
    for (number, name) in ODD.iter().enumerate() {
        fs::create_dir_all(root.join("odd").join(name)).unwrap();
        fs::write(root.join("odd").join(name).join(name), format!("{number}\n")).unwrap();
    }
    fs::write(root.join("large"), pattern(700_001)).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(root.join("hollow")).unwrap();
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// Both trees have the same names, bytes and permission bits.
fn assert_same(one: &Path, two: &Path) {
    let names = |directory: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(two), "in {}", one.display());
    for name in names(one) {
        let (one, two) = (one.join(&name), two.join(&name));
        let (left, right) =
            (fs::symlink_metadata(&one).unwrap(), fs::symlink_metadata(&two).unwrap());
        assert_eq!(left.file_type(), right.file_type(), "{}", one.display());
        if left.is_symlink() {
            assert_eq!(fs::read_link(&one).unwrap(), fs::read_link(&two).unwrap());
            continue;
        }
        assert_eq!(left.mode(), right.mode(), "{}", one.display());
        if left.is_dir() { assert_same(&one, &two) } else { assert_same_bytes(&one, &two) }
    }
}

fn assert_same_bytes(one: &Path, two: &Path) {
    let (left, right) = (fs::read(one).unwrap(), fs::read(two).unwrap());
    let differs = left.iter().zip(&right).position(|(left, right)| left != right);
    assert_eq!((left.len(), differs), (right.len(), None), "{} {}", one.display(), two.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_sftp_works() {
    let stage = Stage::new().await;
    fs::write(stage.path("there"), "from the workspace").unwrap();
    fs::write(stage.here("mine"), "from the client").unwrap();
    fs::set_permissions(stage.here("mine"), fs::Permissions::from_mode(0o640)).unwrap();
    let said = stage
        .sftp(
            "pwd\nget there\nput mine sub/deep/mine\nls -l\nmkdir dir\ncd dir\npwd\nput -p ../here/mine kept\n\
             chmod 600 kept\nrename kept renamed\nln -s renamed link\nls -l\nget link\ncd ..\n\
             rm dir/link\nrename dir/renamed dir/again\nrm dir/again\nrmdir dir\nls\ndf\n",
        )
        .await;
    for line in ["Remote working directory: /\n", "Remote working directory: /dir\n"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.contains("-rw-------"), "{said}");
    assert_eq!(fs::read_to_string(stage.here("there")).unwrap(), "from the workspace");
    assert_eq!(fs::read_to_string(stage.here("link")).unwrap(), "from the client");
    assert_eq!(fs::read_to_string(stage.path("sub/deep/mine")).unwrap(), "from the client");
    assert!(!stage.path("dir").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_said() {
    let stage = Stage::new().await;
    fs::write(stage.path("file"), "kept").unwrap();
    fs::create_dir(stage.path("full")).unwrap();
    fs::write(stage.path("full/x"), "kept").unwrap();
    fs::write(stage.directory.path().join("outside"), "secret").unwrap();
    std::os::unix::fs::symlink("../outside", stage.path("leak")).unwrap();
    for (batch, says) in [
        ("get missing\n", "not found"),
        ("get ../outside\n", "not found"),
        ("get leak got\n", "denied"),
        ("put mine leak\n", "denied"),
        ("ln -s ../outside new\n", "denied"),
        ("ln -s /etc/../../outside new\n", "denied"),
        ("rmdir full\n", "Failure"),
        ("rmdir file\n", "Failure"),
        ("mkdir full\n", "Failure"),
        ("ls missing\n", "not found"),
        ("chown 12 file\n", "ownership"),
        ("ln file hard\n", "does not support"),
    ] {
        fs::write(stage.here("mine"), "mine").unwrap();
        let output = stage.sftp_with(&[], batch).await;
        assert_eq!(output.status.code(), Some(1), "{batch}{output:?}");
        assert!(text(&output.stderr).contains(says), "{batch}{output:?}");
    }
    assert_eq!(fs::read_to_string(stage.directory.path().join("outside")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(stage.path("file")).unwrap(), "kept");
    assert!(!stage.here("got").exists() && !stage.path("new").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_mean_what_they_mean_to_the_published_clients() {
    let stage = Stage::new().await;
    fs::create_dir(stage.path("dir")).unwrap();
    fs::write(stage.path("dir/file"), "found").unwrap();
    let root = stage.backend.info().root_aliases[0].clone();
    for path in ["dir/file", "/dir/file", &format!("{root}/dir/file"), "dir/../dir/./file"] {
        let _ = fs::remove_file(stage.here("file"));
        stage.sftp(&format!("get {path}\n")).await;
        assert_eq!(fs::read_to_string(stage.here("file")).unwrap(), "found", "{path}");
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfers_go_on() {
    let stage = Stage::new().await;
    let whole = pattern(300_000);
    fs::write(stage.path("whole"), &whole).unwrap();
    fs::write(stage.here("whole"), &whole[..100_000]).unwrap();
    stage.sftp("reget whole\n").await;
    assert!(fs::read(stage.here("whole")).unwrap() == whole);
    fs::write(stage.path("whole"), &whole[..50_000]).unwrap();
    stage.sftp("reput whole\n").await;
    assert!(fs::read(stage.path("whole")).unwrap() == whole);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scp_copies_trees_both_ways() {
    let stage = Stage::new().await;
    let there = "agent@127.0.0.1:";
    make_tree(&stage.here("tree"));
    // By SFTP, and the old way by a program at the other end.
    for (name, way) in [("new", &[][..]), ("old", &["-O"])] {
        if name == "old" {
            // That protocol has lines, and names with a line end in them are not sent.
            fs::remove_dir_all(stage.here("tree/odd/new\nline")).unwrap();
        }
        let mut put = stage.program("scp");
        put.args(way).args(["-rp", "tree"]).arg(format!("{there}{name}"));
        let output = finish(&mut put).await;
        assert!(output.status.success(), "{name}: {output:?}");
        assert_same(&stage.here("tree"), &stage.path(name));
        let mut get = stage.program("scp");
        get.args(way).arg("-rp").arg(format!("{there}{name}")).arg(format!("back-{name}"));
        let output = finish(&mut get).await;
        assert!(output.status.success(), "{name}: {output:?}");
        assert_same(&stage.here("tree"), &stage.here(&format!("back-{name}")));
    }
    assert!(!stage.path("gone").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rsync_copies_trees_both_ways() {
    if !has("rsync") {
        host::report_skip("rsync over ssh", "there is no rsync");
        return;
    }
    let stage = Stage::new().await;
    make_tree(&stage.here("tree"));
    std::os::unix::fs::symlink("large", stage.here("tree/link")).unwrap();
    let shell = std::iter::once("ssh".to_owned()).chain(stage.options());
    let shell = shell.collect::<Vec<_>>().join(" ");
    let rsync = async |from: &str, to: &str| {
        let mut command = tokio::process::Command::new("rsync");
        command.args(["-rlpt", "--delete", "-e", &shell, from, to]).current_dir(stage.here(""));
        let output = finish(&mut command).await;
        assert!(output.status.success(), "{from} {to}: {output:?}");
    };
    rsync("tree/", "agent@127.0.0.1:tree/").await;
    assert_same(&stage.here("tree"), &stage.path("tree"));
    // Only what changed goes, and what is gone goes too.
    fs::write(stage.path("tree/large"), pattern(800_000)).unwrap();
    fs::remove_dir_all(stage.path("tree/odd/plain")).unwrap();
    rsync("agent@127.0.0.1:tree/", "tree/").await;
    assert_same(&stage.path("tree"), &stage.here("tree"));
    assert!(!stage.here("tree/odd/plain").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_by_sshfs() {
    if !has("sshfs") || !has("unshare") || File::open("/dev/fuse").is_err() {
        host::report_skip("sshfs", "there is no sshfs, no unshare or no FUSE");
        return;
    }
    let stage = Stage::new().await;
    fs::write(stage.path("there"), "from the workspace").unwrap();
    fs::create_dir(stage.here("mnt")).unwrap();
    let options = stage.options();
    // sshfs takes what ssh takes, but has no `-F`.
    let options: Vec<&str> = options[2..].iter().map(String::as_str).collect();
    let script = "set -e; sshfs \"$@\" agent@127.0.0.1:/ mnt; cd mnt; \
        test \"$(cat there)\" = 'from the workspace'; mkdir -p a/b; echo one > a/b/f; \
        echo two >> a/b/f; mv a/b/f a/g; ln -s g a/l; cat a/l; truncate -s 3 a/g; chmod 600 a/g; \
        dd if=/dev/zero of=z bs=64k count=40 status=none; cmp -n 2621440 z /dev/zero; rm z; \
        ls -l a; df . >/dev/null; cd ..; fusermount3 -u mnt";
    let mut command = tokio::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).args(options).current_dir(stage.here(""));
    let output = finish(&mut command).await;
    if text(&output.stderr).contains("unshare failed") {
        host::report_skip("sshfs", "no mount namespace can be made");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).starts_with("one\ntwo\n"), "{output:?}");
    assert_eq!(fs::read_to_string(stage.path("a/g")).unwrap(), "one");
    assert_eq!(fs::metadata(stage.path("a/g")).unwrap().mode() & 0o777, 0o600);
    stage.end().await;
}

/// More than any queue on the way holds: a server that waits for window before it reads on hangs
/// here, since the client's window adjustments are behind its requests. The files that come have
/// holes and go nowhere, so that only the one that is put takes room.
#[tokio::test(flavor = "multi_thread")]
async fn slow_large_files_come_and_go() {
    const MIB: usize = 1024 * 1024;
    const WHOLE: usize = 1024;
    const PART: usize = 64;
    let stage = Stage::new().await;
    for large in [stage.path("large"), stage.here("whole")] {
        File::create(large).unwrap().set_len((WHOLE * MIB) as u64).unwrap();
    }
    fs::write(stage.here("part"), pattern(MIB).repeat(PART)).unwrap();
    let mut took = Vec::new();
    for batch in ["get large /dev/null\n", "put whole\n", "put part\n", "get part back\n"] {
        let started = Instant::now();
        let mut command = stage.program("sftp");
        command.args(["-c", "aes128-gcm@openssh.com", "-b", "-", "agent@127.0.0.1"]);
        let transfer = patiently_fed(&mut command, batch.as_bytes());
        let transfer = timeout(Duration::from_secs(300), transfer);
        let output = transfer.await.expect("the transfer hangs");
        assert!(output.status.success(), "{output:?}");
        took.push(started.elapsed());
    }
    println!(
        "{WHOLE} MiB: get {:?}, put {:?}; {PART} MiB: put {:?}, get {:?}",
        took[0], took[1], took[2], took[3]
    );
    assert_eq!(fs::metadata(stage.path("whole")).unwrap().len(), (WHOLE * MIB) as u64);
    assert_same_bytes(&stage.here("part"), &stage.path("part"));
    assert_same_bytes(&stage.here("part"), &stage.here("back"));
    stage.end().await;
}

/// Bits that nobody gets are no failure, and a name that cannot be copied is one.
#[tokio::test(flavor = "multi_thread")]
async fn copies_say_what_they_leave_out() {
    let stage = Stage::new().await;
    fs::create_dir(stage.here("open")).unwrap();
    fs::write(stage.here("open/tool"), "x").unwrap();
    fs::set_permissions(stage.here("open/tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(stage.here("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut put = stage.program("scp");
    let output = finish(put.args(["-rp", "open", "agent@127.0.0.1:open"])).await;
    assert!(output.status.success(), "{output:?}");
    for (name, mode) in [("open", 0o777), ("open/tool", 0o755)] {
        let (mine, theirs) =
            (fs::metadata(stage.here(name)).unwrap(), fs::metadata(stage.path(name)).unwrap());
        assert_eq!((theirs.mode() & 0o7777, theirs.mtime()), (mode, mine.mtime()), "{name}");
    }
    let strange = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(stage.path("open").join(strange), "x").unwrap();
    for program in ["scp", "sftp"] {
        let mut get = stage.program(program);
        let output = finish(get.args(["-r", "agent@127.0.0.1:open", program])).await;
        assert!(!output.status.success(), "{program}: {output:?}");
        assert!(text(&output.stderr).contains("open/caf"), "{program}: {output:?}");
        assert_eq!(fs::read_to_string(stage.here(program).join("tool")).unwrap(), "x");
    }
    stage.end().await;
}

/// Several programs over one connection: a command that does not read its input holds up no copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_read_holds_up_no_copy() {
    const INPUT: usize = 40_000_000;
    let stage = Stage::new().await;
    fs::write(stage.here("large"), pattern(12_000_000)).unwrap();
    let path = format!("ControlPath={}", stage.here("socket").display());
    let mut master = stage.program("ssh");
    master.args(["-o", &path, "-o", "ControlMaster=yes", "agent@127.0.0.1"]);
    master.arg("touch on; while [ ! -e go ]; do sleep 0.1; done; wc -c");
    let feeding = tokio::spawn(async move { patiently_fed(&mut master, &[7; INPUT]).await });
    within(async {
        while !stage.path("on").exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut put = stage.program("scp");
    let output = finish(put.args(["-o", &path, "large", "agent@127.0.0.1:large"])).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!feeding.is_finished());
    assert_same_bytes(&stage.here("large"), &stage.path("large"));
    fs::write(stage.path("go"), "").unwrap();
    let output = within(feeding).await.unwrap();
    assert_eq!(text(&output.stdout).trim(), INPUT.to_string(), "{output:?}");
    stage.end().await;
}
