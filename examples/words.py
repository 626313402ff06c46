# attache serve examples/words.py
from attache.agent import agent


@agent
async def words(turn):
    "Counts the words of a message"
    text = turn.text.removeprefix("count").strip()
    if not text:
        yield turn.ask("Which text?")
        return
    turn.progress("Counting")
    for number, word in enumerate(text.split(), 1):
        yield f"{number}. {word}\n"
    turn.artifact("count", data={"words": number})
