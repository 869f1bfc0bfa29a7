//! The seccomp filter, which refuses system calls that would bypass the other mechanisms.
//!
//! The filter refuses session keys, mounts, modules, sockets of forbidden families, the insertion
//! of text into a terminal's input, and modes that make a file set-user-ID or set-group-ID. It
//! refuses user namespaces, because a process gets back its dropped privileges in them. It refuses
//! io_uring, because io_uring opens files and sockets without the filter.
//!
//! `clone3` and `openat2` have their flags in memory, where a filter cannot see them. These calls
//! return ENOSYS, and programs then use `clone` and `openat` instead. The calls of the x32
//! interface return ENOSYS too. A program for another architecture is killed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ab_core::effective_policy::NetworkAccess;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// The other mechanism that isolates the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IsolatedBy {
    /// bwrap: the command has its own processes, shared memory and message queues.
    Namespaces,
    /// Landlock: it restricts files and signals, but not the calls in [`SHARED`].
    Rules,
}

/// Whether the filter refuses sockets that reach other programs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LocalSockets {
    /// The sockets are allowed, because namespaces hide the names of other programs' sockets.
    Allowed,
    Refused,
}

/// Calls that are refused with any arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
];

/// Calls for shared memory and message queues. All programs of a user share these, if no namespace
/// separates the programs.
const SHARED: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The flags of `clone` and `unshare` that create a namespace.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// A flag that creates a namespace in `unshare` only. In `clone`, this bit is part of the exit
/// signal.
const TIME_NAMESPACE: i32 = 0x80;

/// Calls that set the mode of a file, each with the index of the mode argument. `mkdir` is not
/// listed, because the kernel ignores the set-user-ID and set-group-ID bits of its mode.
const SET_MODE: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

/// Calls that use their mode only together with one of the flags in [`CREATING`], each with the
/// indices of the flags and of the mode.
const OPEN_MODE: &[(libc::c_long, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];
/// Flags that create a file: `O_CREAT`, and the bit of `O_TMPFILE` that no other flag has.
const CREATING: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
/// The set-user-ID and set-group-ID bits of a mode.
const SET_ID: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The bits that contain the socket type in an argument that also contains flags.
const SOCKET_TYPE: u64 = 0xf;
/// The types of local socket pairs that can only send to their other end. Other types are not
/// listed, because a datagram socket can send to any path. If a raw socket is requested, the kernel
/// creates a datagram socket.
const PAIRED: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];

/// Calls that return ENOSYS because the filter cannot see their arguments.
const ABSENT: [libc::c_long; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// The bit that is set in all call numbers of the x32 interface.
const X32: u32 = 0x4000_0000;

pub(crate) type Filter = Arc<[sock_filter]>;

/// Returns the filter. Each variant is built only once.
pub(crate) fn filter(
    isolated_by: IsolatedBy,
    network: NetworkAccess,
    sockets: LocalSockets,
) -> Result<Filter, String> {
    static MADE: [OnceLock<Result<Filter, String>>; 8] = [const { OnceLock::new() }; 8];
    let form = usize::from(isolated_by == IsolatedBy::Rules)
        + 2 * usize::from(network == NetworkAccess::None)
        + 4 * usize::from(sockets == LocalSockets::Refused);
    MADE[form].get_or_init(|| make(isolated_by, network, sockets).map(Arc::from)).clone()
}

/// Returns the filter in the format that bwrap reads.
pub(crate) fn bytes(filter: &[sock_filter]) -> Vec<u8> {
    filter
        .iter()
        .flat_map(|each| {
            let [code, other] = [each.code.to_ne_bytes(), [each.jt, each.jf]];
            [code, other].into_iter().flatten().chain(each.k.to_ne_bytes())
        })
        .collect()
}

fn make(
    isolated_by: IsolatedBy,
    network: NetworkAccess,
    sockets: LocalSockets,
) -> Result<BpfProgram, String> {
    let explained = |error: seccompiler::BackendError| format!("no filter can be made: {error}");
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(explained)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let flag = |bit: i32| {
        let bit = u64::from(bit.cast_unsigned());
        when(0, SeccompCmpOp::MaskedEq(bit), bit)
    };
    let spaces: Result<Vec<_>, _> = NAMESPACES.iter().map(|bit| flag(*bit)).collect();
    let mut spaces = spaces.map_err(explained)?;
    rules.insert(libc::SYS_clone, spaces.clone());
    spaces.push(flag(TIME_NAMESPACE).map_err(explained)?);
    rules.insert(libc::SYS_unshare, spaces);
    let terminal =
        [libc::TIOCSTI, libc::TIOCLINUX].map(|request| when(1, SeccompCmpOp::Eq, request));
    let terminal: Result<Vec<_>, _> = terminal.into_iter().collect();
    rules.insert(libc::SYS_ioctl, terminal.map_err(explained)?);
    let foreign = foreign_sockets(isolated_by, network, sockets).map_err(explained)?;
    rules.insert(libc::SYS_socket, foreign);
    rules.insert(libc::SYS_socketpair, foreign_pairs(sockets).map_err(explained)?);
    if isolated_by == IsolatedBy::Rules {
        rules.extend(SHARED.iter().map(|call| (*call, Vec::new())));
        // Refuse to set the limits of other processes, because a command could kill another process
        // by a limit on CPU time.
        let others = when(0, SeccompCmpOp::Ne, 0).map_err(explained)?;
        rules.insert(libc::SYS_prlimit64, vec![others]);
    }
    // Refuse modes that make a file in the workspace set-user-ID, because other users of the host
    // could become root through such a file.
    for (call, mode) in SET_MODE {
        let bits = SET_ID.map(|bit| SeccompRule::new(vec![has(*mode, bit)?]));
        let bits: Result<Vec<_>, _> = bits.into_iter().collect();
        rules.insert(*call, bits.map_err(explained)?);
    }
    for (call, flags, mode) in OPEN_MODE {
        let pairs = CREATING.into_iter().flat_map(|flag| SET_ID.map(|bit| (flag, bit)));
        let made = pairs.map(|(flag, bit)| {
            SeccompRule::new(vec![has(*flags, flag.cast_unsigned())?, has(*mode, bit)?])
        });
        let made: Result<Vec<_>, _> = made.collect();
        rules.insert(*call, made.map_err(explained)?);
    }
    let free = free_calls(rules.keys().copied());
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(explained)?;
    Ok(quick_answers(&free).into_iter().chain(absent_calls()).chain(program).collect())
}

/// The highest call number that this file knows.
const LAST_CALL: i64 = libc::SYS_landlock_restrict_self;
/// A run of call numbers without a rule gets an early answer only if it is at least this long.
const SHORTEST_RUN: i64 = 10;

/// Returns runs of call numbers that have no rule. Whenever a process installs a filter, the kernel
/// evaluates the whole filter for every call number. For the numbers in these runs, the evaluation
/// can stop early.
fn free_calls(ruled: impl Iterator<Item = i64>) -> Vec<(u32, u32)> {
    let mut ruled: Vec<i64> = ruled.chain(ABSENT).chain([-1, LAST_CALL + 1]).collect();
    ruled.sort_unstable();
    ruled
        .windows(2)
        .map(|pair| (pair[0] + 1, pair[1] - 1))
        .filter(|(first, last)| last - first >= SHORTEST_RUN)
        .filter_map(|(first, last)| Some((first.try_into().ok()?, last.try_into().ok()?)))
        .collect()
}

/// Returns the instructions at the start of the filter. They allow the calls in these runs for
/// programs of our own architecture.
fn quick_answers(free: &[(u32, u32)]) -> Vec<sock_filter> {
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    let own = match std::env::consts::ARCH {
        "x86_64" => 0xc000_003e,
        "aarch64" => 0xc000_00b7,
        _ => return Vec::new(),
    };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let jump = |test: u32, jt, jf, value| step(libc::BPF_JMP | test | libc::BPF_K, jt, jf, value);
    let mut answers = vec![load(NUMBER)];
    for (first, last) in free {
        answers.push(jump(libc::BPF_JGE, 0, 2, *first));
        answers.push(jump(libc::BPF_JGT, 1, 0, *last));
        answers.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    }
    let Ok(past) = u8::try_from(answers.len()) else { return Vec::new() };
    let mut program = vec![load(ARCHITECTURE), jump(libc::BPF_JEQ, 0, past, own)];
    program.append(&mut answers);
    program
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Refuses sockets of all families except the ones that are allowed here.
fn foreign_sockets(
    isolated_by: IsolatedBy,
    network: NetworkAccess,
    sockets: LocalSockets,
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut allowed = Vec::new();
    if network == NetworkAccess::Shared {
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if sockets == LocalSockets::Allowed {
        allowed.push(libc::AF_UNIX);
    }
    if network == NetworkAccess::None && isolated_by == IsolatedBy::Namespaces {
        // The network namespace belongs to this command alone, so it contains no other program.
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    let other_than = |family: &i32| {
        SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            u64::from(family.cast_unsigned()),
        )
    };
    let conditions: Result<Vec<_>, _> = allowed.iter().map(other_than).collect();
    let conditions = conditions?;
    if conditions.is_empty() {
        return Ok(Vec::new());
    }
    // For netlink, allow only the route protocol, which lists the interfaces. The other netlink
    // protocols reach other programs and drivers of the kernel.
    let netlink = SeccompRule::new(vec![
        equals(0, libc::AF_NETLINK)?,
        SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?,
    ])?;
    Ok(vec![SeccompRule::new(conditions)?, netlink])
}

/// Refuses socket pairs that are not local. If local sockets are refused, also refuses the types
/// that can send to other sockets.
fn foreign_pairs(sockets: LocalSockets) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let local = u64::from(libc::AF_UNIX.cast_unsigned());
    let mut rules = vec![when(0, SeccompCmpOp::Ne, local)?];
    if sockets == LocalSockets::Refused {
        let paired = PAIRED.map(|kind| u64::from(kind.cast_unsigned()));
        let others = (0..=SOCKET_TYPE).filter(|kind| !paired.contains(kind));
        let others = others.map(|kind| when(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind));
        rules.extend(others.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(rules)
}

/// Returns the condition that an argument has every bit of `bits`.
fn has(argument: u8, bits: u32) -> Result<SeccompCondition, seccompiler::BackendError> {
    let bits = u64::from(bits);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits)
}

fn equals(argument: u8, value: i32) -> Result<SeccompCondition, seccompiler::BackendError> {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn when(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

/// Returns the instructions before the main filter. They make the calls in [`ABSENT`] and all calls
/// of the x32 interface return ENOSYS.
fn absent_calls() -> Vec<sock_filter> {
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let absent = ABSENT.map(|call| (call as u32, libc::BPF_JEQ));
    let x32 = (X32, libc::BPF_JGE);
    let answer = step(libc::BPF_RET | libc::BPF_K, 0, 0, no_such_call);
    let mut program = vec![load_number];
    for (value, comparison) in absent.into_iter().chain([x32]) {
        program.push(step(libc::BPF_JMP | comparison | libc::BPF_K, 0, 1, value));
        program.push(answer.clone());
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_at_once_has_no_rule() {
        let ruled = [3, 16, 17, 41, 400];
        let free = free_calls(ruled.into_iter());
        assert_eq!(free, [(4, 15), (18, 40), (42, 399), (401, 434)]);
        for absent in ABSENT.map(|call| u32::try_from(call).unwrap()) {
            assert!(!free.iter().any(|(first, last)| (*first..=*last).contains(&absent)));
        }
        // Check that every jump target lies inside the program.
        let program = quick_answers(&free);
        assert_eq!(program.len(), 3 + 3 * free.len());
        assert_eq!(usize::from(program[1].jf), program.len() - 2);
    }

    #[test]
    fn every_form_can_be_made_and_is_made_once() {
        for isolated_by in [IsolatedBy::Namespaces, IsolatedBy::Rules] {
            for network in [NetworkAccess::Shared, NetworkAccess::None] {
                for sockets in [LocalSockets::Allowed, LocalSockets::Refused] {
                    let first = filter(isolated_by, network, sockets).unwrap();
                    assert!(Arc::ptr_eq(&first, &filter(isolated_by, network, sockets).unwrap()));
                    assert_eq!(bytes(&first).len(), first.len() * 8);
                    // The kernel refuses a longer filter.
                    assert!(first.len() < 4096, "{}", first.len());
                }
            }
        }
    }
}
