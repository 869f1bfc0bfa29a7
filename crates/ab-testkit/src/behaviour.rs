//! The behaviour suite: what holds for every driver, view and transport.
//!
//! A case is a function of a [`Backend`](ab_core::Backend) with its own empty workspace. It panics
//! if the backend behaves differently. [`behaviour_suite!`](crate::behaviour_suite) turns all cases
//! into tests:
//!
//! ```
//! use ab_core::{Backend, MemoryDriver};
//! use ab_testkit::{TestBackend, behaviour_suite};
//!
//! async fn memory() -> TestBackend {
//!     TestBackend::new(Backend::new(MemoryDriver::new()))
//! }
//!
//! // Tests named `on_memory::read::returns_what_was_written`, and so on.
//! behaviour_suite! { on_memory => memory }
//! # fn main() {}
//! ```
//!
//! If the backend lacks a capability, the cases for this capability check that calls fail with
//! `Unsupported`. The list of cases is only in the macro. A tidy test compares the list with the
//! functions.

pub mod attributes;
pub mod destroy;
pub mod detached;
pub mod edit;
pub mod environment;
pub mod exec;
pub mod held;
pub mod links;
pub mod list;
pub mod mkdir;
pub mod open;
pub mod paths;
pub mod read;
pub mod remove;
pub mod rename;
pub mod restricted;
pub mod search;
pub mod stat;
pub mod status;
pub mod touch;
pub mod write;

/// Creates a test for every case in a module `name`. Each test gets its own backend from `fixture`:
/// the path of an `async fn() -> TestBackend`, seen from where the macro is used. With `, commands`
/// after the fixture, only the cases about commands are run. This is used to test another way to
/// run commands.
#[macro_export]
macro_rules! behaviour_suite {
    ($name:ident => $($fixture:ident)::+) => {
        mod $name {
            async fn world() -> $crate::TestBackend {
                super::$($fixture)::+().await
            }

            $crate::behaviour_suite! { @files }
            $crate::behaviour_suite! { @commands }
        }
    };
    ($name:ident => $($fixture:ident)::+, commands) => {
        mod $name {
            async fn world() -> $crate::TestBackend {
                super::$($fixture)::+().await
            }

            $crate::behaviour_suite! { @commands }
        }
    };
    (@files) => {
        $crate::behaviour_suite! { @tests
            attributes: [
                absent_ones_stay,
                bits_beyond_permissions_are_refused,
                missing_is_not_found,
                mode_and_times_are_kept,
                writes_keep_the_mode,
            ],
            destroy: [
                ends_open_files,
                is_idempotent,
                is_one_transition,
                many_at_once_are_one,
                nothing_leads_back,
                refuses_everything_after,
            ],
            edit: [
                all_occurrences,
                all_or_nothing,
                binary_is_refused,
                concurrent_edits_lose_nothing,
                dollars_are_text,
                dry_run_changes_nothing,
                first_occurrence,
                gives_a_diff,
                keeps_crlf,
                missing_text_is_no_match,
                must_be_unique,
                needs_a_file,
                senseless_edits_are_refused,
                several_build_on_each_other,
                stale_version_is_a_conflict,
            ],
            links: [
                circles_are_refused,
                dangling_leads_nowhere,
                existing_name_is_refused,
                leaving_the_workspace_is_refused,
                list_does_not_follow,
                reading_a_file_as_a_link_is_invalid,
                removal_takes_the_link_only,
                rename_moves_the_link,
                stat_follows_or_keeps,
                text_is_kept,
                write_goes_to_the_target,
            ],
            list: [
                a_file_is_not_a_directory,
                children_in_order,
                depth_bounds_the_walk,
                details_match_stat,
                fresh_workspace_is_empty,
                limit_cuts_and_says_so,
                many_children,
                missing_is_not_found,
                names_not_paths,
                whole_tree_in_path_order,
            ],
            mkdir: [
                existing_is_fine,
                makes_intermediates,
                onto_a_file_is_refused,
                through_a_file_is_refused,
            ],
            open: [
                a_directory_is_refused,
                appends_when_told,
                attributes_are_of_the_file,
                concurrent_writers_keep_apart,
                create_always_refuses_existing,
                creates_with_parents,
                describes_itself,
                handle_follows_a_rename,
                handle_outlives_its_name,
                keeps_content_unless_told,
                missing_is_not_found,
                read_only_refuses_writes,
                reads_at_offsets,
                sets_the_length,
                syncs,
                through_a_file_is_refused,
                truncates_when_asked,
                writes_at_offsets,
            ],
            paths: [
                absolute_elsewhere_is_from_the_root,
                absolute_under_an_alias_is_kept,
                climbing_out_of_an_alias_is_refused,
                deep_paths_work,
                empty_is_refused,
                errors_name_the_path,
                escapes_are_refused,
                inner_dotdot_is_resolved,
                names_at_the_limit_work,
                nul_is_refused,
                over_long_is_refused,
                relative_is_below_the_root,
                reserved_names_are_refused,
                scope_confines,
            ],
            read: [
                a_directory_is_refused,
                below_a_file_is_not_a_directory,
                carries_the_version,
                empty_file,
                lines_come_in_windows,
                lines_fail_like_the_whole,
                many_keep_their_order,
                missing_is_not_found,
                over_the_limit_is_refused,
                pieces_add_up,
                range,
                range_past_the_end_is_cut,
                returns_what_was_written,
                text_must_be_utf8,
            ],
            remove: [
                a_file,
                an_empty_directory,
                below_a_file_is_not_a_directory,
                full_directory_needs_recursion,
                missing_can_be_ignored,
                missing_is_not_found,
                names_with_the_same_beginning_stay,
                recursion_takes_everything,
                the_root_is_refused,
            ],
            rename: [
                a_directory_with_its_content,
                a_file,
                directory_onto_file_is_refused,
                existing_target_is_refused,
                file_onto_directory_is_refused,
                full_directory_is_not_replaced,
                into_itself_is_refused,
                makes_parents,
                missing_is_not_found,
                onto_itself_changes_nothing,
                overwrite_replaces_a_file,
                target_below_a_file_is_refused,
                the_root_is_refused,
            ],
            restricted: [
                a_whole_workspace_may_be_read_only,
                hidden_files_are_not_there,
                kept_files_do_not_change,
                listings_leave_hidden_files_out,
            ],
            search: [
                a_file_may_be_the_root_of_a_text_search,
                binary_files_are_counted,
                excluded_directories_are_left_whole,
                files_and_counts,
                files_are_chosen_by_globs,
                globs_match_as_said,
                ignore_files_are_honoured_when_asked,
                what_is_ignored_is_counted,
                kinds_are_chosen,
                limits_cut_and_say_so,
                lines_are_selected_as_asked,
                lines_have_numbers_and_context,
                missing_root_is_not_found,
                names_come_in_path_order,
                needs_the_capability,
                senseless_patterns_are_refused,
                text_is_literal_unless_asked,
            ],
            stat: [
                below_a_file_is_not_a_directory,
                directory,
                exists_answers_yes_or_no,
                file,
                missing_is_not_found,
                root,
                space_adds_up,
                version_changes_with_each_write,
                version_stays_without_a_write,
            ],
            status: [
                connect_is_idempotent,
                connected_until_destroyed,
                info_is_honest,
                starts_connected,
                subscriptions_are_independent,
                tickets_of_others_are_unknown,
            ],
            touch: [
                a_directory_is_refused,
                creates_an_empty_file,
                keeps_existing_content,
                many_at_once_make_one_file,
                through_a_file_is_refused,
            ],
            write: [
                concurrent_conditional_writers_lose_nothing,
                concurrent_writers_leave_one_whole_content,
                create_if_missing_keeps_existing,
                create_new_refuses_existing,
                creates_parents,
                expected_version_is_checked,
                many_keep_their_order,
                odd_names_are_only_names,
                onto_a_directory_is_refused,
                replace_needs_existing,
                replaces_content,
                the_root_is_refused,
                through_a_file_is_refused,
            ],
        }
    };
    (@commands) => {
        $crate::behaviour_suite! { @tests
            detached: [
                are_listed,
                destroy_ends_them,
                input_is_shared,
                leaving_loses_nothing,
                loss_is_told,
                nobody_has_to_read,
                output_is_kept,
                scopes_see_their_own,
                they_stay_until_ended,
                unknown_is_not_found,
            ],
            environment: [
                given_ones_are_there,
                loaders_are_refused,
                scopes_add_theirs,
                senseless_ones_are_refused,
                starts_small,
            ],
            exec: [
                channels_are_told_apart,
                merged_output_keeps_its_order,
                codes_are_passed_on,
                directory_can_be_chosen,
                directory_may_be_a_link,
                directory_may_go_away,
                directory_must_be_inside,
                empty_is_refused,
                failure_has_code_and_words,
                home_is_the_directory,
                input_is_empty_or_as_given,
                lines_may_be_long,
                many_at_once,
                needs_the_capability,
                output_is_cut_with_a_note,
                output_is_exact,
                runs_in_a_shell,
                says_what_is_in_force,
                starts_at_the_root,
                timeout_keeps_what_was_said,
                words_are_passed_as_they_are,
            ],
            held: [
                cancelling_ends_everything,
                drop_ends_everything,
                exit_is_a_value,
                input_is_fed,
                pieces_are_numbered,
                readers_may_be_slow_or_gone,
                signals_arrive,
                terminals_have_a_size,
                terminals_know_keys,
                terminals_pass_signals_on,
                the_end_takes_everything_along,
            ],
        }
    };
    (@tests $($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(
            mod $group {
                $(
                    #[tokio::test]
                    async fn $case() {
                        let world = super::world().await;
                        $crate::behaviour::$group::$case(&world.backend).await;
                    }
                )*
            }
        )*
    };
}
