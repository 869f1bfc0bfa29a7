//! `bench`: the benchmarks whose figures the documentation may state.

use crate::failure::Failure;
use crate::sequence::Sequence;
use crate::step::Step;

/// A part of the system that is measured by one benchmark program.
#[derive(Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) name: &'static str,
    package: &'static str,
    bench: &'static str,
}

pub(crate) const AREAS: &[Area] = &[Area { name: "core", package: "agent-backend", bench: "core" }];

pub(crate) fn run(areas: &[&Area]) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    for area in areas {
        sequence.run(&step(area))?;
    }
    Ok(())
}

fn step(area: &Area) -> Step {
    Step::cargo(area.name, &["bench", "--locked", "-p", area.package, "--bench", area.bench])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_one_benchmark() {
        assert_eq!(
            step(&AREAS[0]).command_line(),
            "cargo bench --locked -p agent-backend --bench core"
        );
    }
}
