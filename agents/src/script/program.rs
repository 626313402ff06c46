//! Steps of a rule as a flat list of instructions, so that one number is the position to continue at.

use super::rules::{ScriptBranch, ScriptStep, TextCondition};

/// Instruction of a program.
#[derive(Debug)]
pub(super) enum Instruction {
    /// Runs a step. It is never a branch.
    Step(ScriptStep),
    /// Continues at the instruction of the first condition that matches the message, or else behind the branches.
    Branch {
        branches: Vec<(TextCondition, usize)>,
        end: usize,
    },
    /// Continues at an instruction.
    Jump(usize),
}

/// Converts the steps of a rule.
pub(super) fn flatten(steps: Vec<ScriptStep>) -> Vec<Instruction> {
    let mut program = Vec::with_capacity(steps.len());
    append(&mut program, steps);
    program
}

fn append(program: &mut Vec<Instruction>, steps: Vec<ScriptStep>) {
    for step in steps {
        if let ScriptStep::Branch(branches) = step {
            append_branches(program, branches);
        } else {
            program.push(Instruction::Step(step));
        }
    }
}

fn append_branches(program: &mut Vec<Instruction>, branches: Vec<ScriptBranch>) {
    let start = program.len();
    // Replaced below, once the positions of the branches are known.
    program.push(Instruction::Jump(start + 1));
    let mut targets = Vec::with_capacity(branches.len());
    let mut exits = Vec::with_capacity(branches.len());
    for branch in branches {
        targets.push((branch.condition(), program.len()));
        append(program, branch.steps);
        exits.push(program.len());
        program.push(Instruction::Jump(0));
    }
    let end = program.len();
    for exit in exits {
        program[exit] = Instruction::Jump(end);
    }
    program[start] = Instruction::Branch {
        branches: targets,
        end,
    };
}

/// Returns the position after a branch or jump; `None` for a step.
pub(super) fn next_position(instruction: &Instruction, text: &str) -> Option<usize> {
    match instruction {
        Instruction::Step(_) => None,
        Instruction::Jump(target) => Some(*target),
        Instruction::Branch { branches, end } => {
            let matching = branches
                .iter()
                .find(|(condition, _)| condition.matches(text));
            Some(matching.map_or(*end, |(_, target)| *target))
        }
    }
}
