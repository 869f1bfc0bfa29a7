//! The number that encodes each value of a closed list.
//!
//! A number is never used for another value later, because peers of other versions may read the
//! number. A new value gets a new number.

use ab_core::effective_policy::{Isolation, PolicyControlKind, PolicyControlStrength};
use ab_core::metadata::{FileKind, TruncationCause};
use ab_core::options::{
    Durability, EntryDetailLevel, ExistingContentHandling, FileAccess, FileCreationMode,
    LinkHandling, OnMissingTarget, OverwriteMode, RemoveDepth, WriteMode, WritePosition,
};
use ab_core::process::{
    ExitCause, HostDirectoryAccess, LeftoverProcessOutcome, OutputChannel, ProcessLifetime,
    StderrMode, StdinMode,
};
use ab_core::search::{
    CaseSensitivity, DotfileVisibility, EntryKindFilter, IgnoreFileHandling, LineSelection,
    MatchLineMode, PatternSyntax, SearchLineRole, SearchOutputMode,
};
use ab_core::{BackendKind, ErrorCode, ErrorKind, LostCallEffect, Verb};

/// A closed list of values, each of which has a number.
pub(crate) trait Numbered: Copy + PartialEq + 'static {
    const NUMBERS: &'static [(u8, Self)];

    fn number(self) -> u8 {
        // A test checks that every value has a number.
        let found = Self::NUMBERS.iter().find(|(_, value)| *value == self);
        found.map_or(u8::MAX, |(number, _)| *number)
    }

    fn by_number(number: u8) -> Option<Self> {
        Self::NUMBERS.iter().find(|(each, _)| *each == number).map(|(_, value)| *value)
    }
}

impl Numbered for Verb {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, Verb::Stat),
        (1, Verb::List),
        (2, Verb::Search),
        (3, Verb::Read),
        (4, Verb::Write),
        (5, Verb::Touch),
        (6, Verb::Open),
        (7, Verb::SetAttributes),
        (8, Verb::ReadLink),
        (9, Verb::Symlink),
        (10, Verb::Mkdir),
        (11, Verb::Delete),
        (12, Verb::Rename),
        (13, Verb::DiskSpace),
        (14, Verb::Exec),
        (15, Verb::Processes),
        (16, Verb::Attach),
        (17, Verb::Connect),
    ];
}

impl Numbered for LostCallEffect {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, LostCallEffect::Applied),
        (1, LostCallEffect::NotApplied),
        (2, LostCallEffect::Unknown),
    ];
}

impl Numbered for ErrorCode {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, ErrorCode::EmptyCommand),
        (1, ErrorCode::UnsafeCommand),
        (2, ErrorCode::ExecFailed),
        (3, ErrorCode::ExecError),
        (4, ErrorCode::ReadFailed),
        (5, ErrorCode::WriteFailed),
        (6, ErrorCode::LsFailed),
        (7, ErrorCode::PathEscapeAttempt),
        (8, ErrorCode::MissingUtilities),
        (9, ErrorCode::InvalidConfiguration),
        (10, ErrorCode::DangerousOperation),
        (11, ErrorCode::ConnectionClosed),
        (12, ErrorCode::KeyNotFound),
        (13, ErrorCode::InvalidPath),
        (14, ErrorCode::NotImplemented),
        (15, ErrorCode::AuthFailed),
        (16, ErrorCode::Timeout),
        (17, ErrorCode::TooLarge),
        (18, ErrorCode::Conflict),
    ];
}

impl Numbered for ErrorKind {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, ErrorKind::NotFound),
        (1, ErrorKind::AlreadyExists),
        (2, ErrorKind::NotADirectory),
        (3, ErrorKind::IsADirectory),
        (4, ErrorKind::NotEmpty),
        (5, ErrorKind::SpecialFile),
        (6, ErrorKind::LinkLoop),
        (7, ErrorKind::InvalidPath),
        (8, ErrorKind::PathEscape),
        (9, ErrorKind::PermissionDenied),
        (10, ErrorKind::DeniedByPolicy),
        (11, ErrorKind::RejectedByPerson),
        (12, ErrorKind::ApprovalPending),
        (13, ErrorKind::Unsupported),
        (14, ErrorKind::TooLarge),
        (15, ErrorKind::NoSpace),
        (16, ErrorKind::Conflict),
        (17, ErrorKind::TextNotFound),
        (18, ErrorKind::TextNotUnique),
        (19, ErrorKind::Invalid),
        (20, ErrorKind::CommandFailed),
        (21, ErrorKind::Unavailable),
        (22, ErrorKind::Timeout),
        (23, ErrorKind::Cancelled),
        (24, ErrorKind::Disconnected),
        (25, ErrorKind::Destroyed),
        (26, ErrorKind::Io),
    ];
}

impl Numbered for BackendKind {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, BackendKind::Local),
        (1, BackendKind::Memory),
        (2, BackendKind::Remote),
        (3, BackendKind::Scoped),
        (4, BackendKind::Mounts),
        (5, BackendKind::Overlay),
    ];
}

impl Numbered for PolicyControlKind {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, PolicyControlKind::Files),
        (1, PolicyControlKind::Attributes),
        (2, PolicyControlKind::Restrictions),
        (3, PolicyControlKind::Network),
        (4, PolicyControlKind::Sockets),
        (5, PolicyControlKind::Processes),
        (6, PolicyControlKind::Orphans),
        (7, PolicyControlKind::Kernel),
        (8, PolicyControlKind::Environment),
        (9, PolicyControlKind::Time),
        (10, PolicyControlKind::Memory),
        (11, PolicyControlKind::ProcessCount),
        (12, PolicyControlKind::Cpu),
        (13, PolicyControlKind::FileSize),
        (14, PolicyControlKind::OpenFiles),
        (15, PolicyControlKind::Output),
        (16, PolicyControlKind::Commands),
        (17, PolicyControlKind::Shell),
    ];
}

impl Numbered for PolicyControlStrength {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, PolicyControlStrength::NotEnforced),
        (1, PolicyControlStrength::Advisory),
        (2, PolicyControlStrength::Enforced),
    ];
}

impl Numbered for Isolation {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, Isolation::Auto),
        (1, Isolation::Bwrap),
        (2, Isolation::Landlock),
        (3, Isolation::Software),
        (4, Isolation::None),
    ];
}

impl Numbered for LinkHandling {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, LinkHandling::Follow), (1, LinkHandling::NoFollow)];
}

impl Numbered for EntryDetailLevel {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, EntryDetailLevel::Kind), (1, EntryDetailLevel::Stat)];
}

impl Numbered for WriteMode {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, WriteMode::CreateOrReplace),
        (1, WriteMode::CreateNew),
        (2, WriteMode::Replace),
        (3, WriteMode::CreateIfMissing),
    ];
}

impl Numbered for Durability {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, Durability::SurvivesProcessExit), (1, Durability::SurvivesPowerLoss)];
}

impl Numbered for FileAccess {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, FileAccess::Read), (1, FileAccess::Write), (2, FileAccess::ReadWrite)];
}

impl Numbered for FileCreationMode {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, FileCreationMode::Never),
        (1, FileCreationMode::IfMissing),
        (2, FileCreationMode::MustBeNew),
    ];
}

impl Numbered for ExistingContentHandling {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, ExistingContentHandling::Keep), (1, ExistingContentHandling::Truncate)];
}

impl Numbered for WritePosition {
    const NUMBERS: &'static [(u8, Self)] = &[(0, WritePosition::AtOffset), (1, WritePosition::End)];
}

impl Numbered for RemoveDepth {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, RemoveDepth::NonRecursive), (1, RemoveDepth::Recursive)];
}

impl Numbered for OnMissingTarget {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, OnMissingTarget::Fail), (1, OnMissingTarget::Ignore)];
}

impl Numbered for OverwriteMode {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, OverwriteMode::Refuse), (1, OverwriteMode::Replace)];
}

impl Numbered for FileKind {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, FileKind::File), (1, FileKind::Dir), (2, FileKind::Symlink), (3, FileKind::Other)];
}

impl Numbered for TruncationCause {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, TruncationCause::Count), (1, TruncationCause::Bytes), (2, TruncationCause::Time)];
}

impl Numbered for StdinMode {
    const NUMBERS: &'static [(u8, Self)] = &[(0, StdinMode::Closed), (1, StdinMode::Piped)];
}

impl Numbered for StderrMode {
    const NUMBERS: &'static [(u8, Self)] = &[(0, StderrMode::Separate), (1, StderrMode::Merged)];
}

impl Numbered for ProcessLifetime {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, ProcessLifetime::Owned), (1, ProcessLifetime::Detached)];
}

impl Numbered for HostDirectoryAccess {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, HostDirectoryAccess::ReadOnly), (1, HostDirectoryAccess::ReadWrite)];
}

impl Numbered for LeftoverProcessOutcome {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, LeftoverProcessOutcome::None), (1, LeftoverProcessOutcome::Ended)];
}

impl Numbered for ExitCause {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, ExitCause::Exited),
        (1, ExitCause::Timeout),
        (2, ExitCause::MemoryLimit),
        (3, ExitCause::DroppedByCaller),
        (4, ExitCause::CpuLimit),
        (5, ExitCause::FileSizeLimit),
    ];
}

impl Numbered for OutputChannel {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, OutputChannel::Stdout), (1, OutputChannel::Stderr)];
}

impl Numbered for EntryKindFilter {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, EntryKindFilter::Files), (1, EntryKindFilter::All)];
}

impl Numbered for PatternSyntax {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, PatternSyntax::Literal), (1, PatternSyntax::Regex)];
}

impl Numbered for CaseSensitivity {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, CaseSensitivity::Sensitive), (1, CaseSensitivity::Insensitive)];
}

impl Numbered for MatchLineMode {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, MatchLineMode::SingleLine), (1, MatchLineMode::MultiLine)];
}

impl Numbered for LineSelection {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, LineSelection::Matching), (1, LineSelection::NonMatching)];
}

impl Numbered for SearchOutputMode {
    const NUMBERS: &'static [(u8, Self)] = &[
        (0, SearchOutputMode::Lines),
        (1, SearchOutputMode::Files),
        (2, SearchOutputMode::Counts),
        (3, SearchOutputMode::MatchedParts),
        (4, SearchOutputMode::FilesWithoutMatch),
    ];
}

impl Numbered for DotfileVisibility {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, DotfileVisibility::Skip), (1, DotfileVisibility::Include)];
}

impl Numbered for IgnoreFileHandling {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, IgnoreFileHandling::Disregard), (1, IgnoreFileHandling::Honour)];
}

impl Numbered for SearchLineRole {
    const NUMBERS: &'static [(u8, Self)] =
        &[(0, SearchLineRole::Match), (1, SearchLineRole::Context)];
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write};

    use super::*;

    /// The numbers that were released. A line may be extended at its end. Nothing else may be
    /// changed.
    const RELEASED: &str = "\
Verb Stat=0 List=1 Search=2 Read=3 Write=4 Touch=5 Open=6 SetAttributes=7 ReadLink=8 Symlink=9 Mkdir=10 Delete=11 Rename=12 DiskSpace=13 Exec=14 Processes=15 Attach=16 Connect=17
CallEffect Applied=0 NotApplied=1 Unknown=2
Code EmptyCommand=0 UnsafeCommand=1 ExecFailed=2 ExecError=3 ReadFailed=4 WriteFailed=5 LsFailed=6 PathEscapeAttempt=7 MissingUtilities=8 InvalidConfiguration=9 DangerousOperation=10 ConnectionClosed=11 KeyNotFound=12 InvalidPath=13 NotImplemented=14 AuthFailed=15 Timeout=16 TooLarge=17 Conflict=18
Kind NotFound=0 AlreadyExists=1 NotADirectory=2 IsADirectory=3 NotEmpty=4 SpecialFile=5 LinkLoop=6 InvalidPath=7 PathEscape=8 PermissionDenied=9 DeniedByPolicy=10 RejectedByPerson=11 ApprovalPending=12 Unsupported=13 TooLarge=14 NoSpace=15 Conflict=16 TextNotFound=17 TextNotUnique=18 Invalid=19 CommandFailed=20 Unavailable=21 Timeout=22 Cancelled=23 Disconnected=24 Destroyed=25 Io=26
BackendKind Local=0 Memory=1 Remote=2 Scoped=3 Mounts=4 Overlay=5
Subject Files=0 Attributes=1 Restrictions=2 Network=3 Sockets=4 Processes=5 Orphans=6 Kernel=7 Environment=8 Time=9 Memory=10 ProcessCount=11 Cpu=12 FileSize=13 OpenFiles=14 Output=15 Commands=16 Shell=17
Strength NotEnforced=0 Advisory=1 Enforced=2
Isolation Auto=0 Bwrap=1 Landlock=2 Software=3 None=4
Links Follow=0 NoFollow=1
Detail Kind=0 Stat=1
WriteMode CreateOrReplace=0 CreateNew=1 Replace=2 CreateIfMissing=3
Durability SurvivesProcessExit=0 SurvivesPowerLoss=1
FileAccess Read=0 Write=1 ReadWrite=2
Creation Never=0 IfMissing=1 MustBeNew=2
Existing Keep=0 Truncate=1
Placement AtOffset=0 End=1
Reach NonRecursive=0 Recursive=1
Missing Fail=0 Ignore=1
Overwrite Refuse=0 Replace=1
FileKind File=0 Dir=1 Symlink=2 Other=3
Truncated Count=0 Bytes=1 Time=2
Stdin Closed=0 Piped=1
Stderr Separate=0 Merged=1
Lifetime Owned=0 Detached=1
BindAccess ReadOnly=0 ReadWrite=1
Leftovers None=0 Ended=1
Cause Exited=0 Timeout=1 MemoryLimit=2 DroppedByCaller=3 CpuLimit=4 FileSizeLimit=5
Channel Stdout=0 Stderr=1
Kinds Files=0 All=1
Syntax Literal=0 Regex=1
Case Sensitive=0 Insensitive=1
Span SingleLine=0 MultiLine=1
LineSelection Matching=0 NonMatching=1
SearchAnswer Lines=0 Files=1 Counts=2 MatchedParts=3 FilesWithoutMatch=4
Visibility Skip=0 Include=1
IgnoreFiles Disregard=0 Honour=1
LineRole Match=0 Context=1
";

    fn line<T: Numbered + Debug>(name: &str, out: &mut String) {
        let numbers: std::collections::BTreeSet<u8> =
            T::NUMBERS.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), T::NUMBERS.len(), "{name} gives a number twice");
        out.push_str(name);
        for (number, value) in T::NUMBERS {
            assert_eq!(value.number(), *number, "{name}");
            assert_eq!(T::by_number(*number), Some(*value), "{name}");
            let _ = write!(out, " {value:?}={number}");
        }
        assert_eq!(T::by_number(u8::MAX), None, "{name}");
        out.push('\n');
    }

    #[test]
    fn released_numbers_stay() {
        let mut now = String::new();
        line::<Verb>("Verb", &mut now);
        line::<LostCallEffect>("CallEffect", &mut now);
        line::<ErrorCode>("Code", &mut now);
        line::<ErrorKind>("Kind", &mut now);
        line::<BackendKind>("BackendKind", &mut now);
        line::<PolicyControlKind>("Subject", &mut now);
        line::<PolicyControlStrength>("Strength", &mut now);
        line::<Isolation>("Isolation", &mut now);
        line::<LinkHandling>("Links", &mut now);
        line::<EntryDetailLevel>("Detail", &mut now);
        line::<WriteMode>("WriteMode", &mut now);
        line::<Durability>("Durability", &mut now);
        line::<FileAccess>("FileAccess", &mut now);
        line::<FileCreationMode>("Creation", &mut now);
        line::<ExistingContentHandling>("Existing", &mut now);
        line::<WritePosition>("Placement", &mut now);
        line::<RemoveDepth>("Reach", &mut now);
        line::<OnMissingTarget>("Missing", &mut now);
        line::<OverwriteMode>("Overwrite", &mut now);
        line::<FileKind>("FileKind", &mut now);
        line::<TruncationCause>("Truncated", &mut now);
        line::<StdinMode>("Stdin", &mut now);
        line::<StderrMode>("Stderr", &mut now);
        line::<ProcessLifetime>("Lifetime", &mut now);
        line::<HostDirectoryAccess>("BindAccess", &mut now);
        line::<LeftoverProcessOutcome>("Leftovers", &mut now);
        line::<ExitCause>("Cause", &mut now);
        line::<OutputChannel>("Channel", &mut now);
        line::<EntryKindFilter>("Kinds", &mut now);
        line::<PatternSyntax>("Syntax", &mut now);
        line::<CaseSensitivity>("Case", &mut now);
        line::<MatchLineMode>("Span", &mut now);
        line::<LineSelection>("LineSelection", &mut now);
        line::<SearchOutputMode>("SearchAnswer", &mut now);
        line::<DotfileVisibility>("Visibility", &mut now);
        line::<IgnoreFileHandling>("IgnoreFiles", &mut now);
        line::<SearchLineRole>("LineRole", &mut now);
        assert_eq!(now, RELEASED);
    }

    #[test]
    fn every_value_of_the_core_has_a_number() {
        fn check<T: Numbered + Debug>(all: &[T]) {
            for value in all {
                assert_ne!(value.number(), u8::MAX, "{value:?} has no number");
            }
        }
        check(&Verb::ALL);
        check(&LostCallEffect::ALL);
        check(&ErrorCode::ALL);
        check(&ErrorKind::ALL);
        check(&BackendKind::ALL);
        check(&PolicyControlKind::ALL);
        check(&PolicyControlStrength::ALL);
        check(&Isolation::ALL);
    }
}
