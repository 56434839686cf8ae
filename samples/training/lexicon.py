"""The words of the synthetic sentences, as tables.

The tables are built so that a model needs attention. Every noun and every name can stand in every slot, and
what follows "It", "She" or "are" is a property of one earlier word alone. Only looking that word up tells.
"""

# ---------------------------------------------------------------------------- things, for "It"
# Each thing has its own things to do. First words differ from thing to thing.
THING_HABITS: dict[str, tuple[str, ...]] = {
    "server": ("rebooted", "answered again", "was restarted"),
    "disk": ("clicked", "spun again", "was replaced"),
    "computer": ("beeped twice", "froze again", "was updated"),
    "phone": ("rang all night", "buzzed", "was charged"),
    "printer": ("printed a page", "jammed", "was refilled"),
    "robot": ("waved", "walked away", "was oiled"),
    "clock": ("ticked again", "struck nine", "was wound"),
    "radio": ("played a song", "hummed", "was tuned"),
    "lamp": ("glowed", "flickered", "was lit"),
    "car": ("drove off", "honked", "was towed"),
    "truck": ("skidded", "carried sand", "was loaded"),
    "boat": ("floated home", "sank", "was rowed home"),
    "train": ("whistled", "arrived late", "was crowded"),
    "plane": ("landed", "flew away", "was grounded"),
    "bridge": ("swayed", "creaked", "was crossed"),
    "engine": ("roared", "smoked", "was cooled"),
    "battery": ("drained", "lasted an hour", "was swapped"),
    "network": ("connected again", "slowed down", "was rebuilt"),
    "oven": ("baked a pie", "warmed the room", "was lit again"),
    "kettle": ("boiled", "steamed", "was filled"),
    "door": ("slammed", "opened", "was locked"),
    "window": ("rattled", "shattered", "was shut"),
    "roof": ("leaked", "dripped", "was patched"),
    "table": ("wobbled", "stood still", "was set"),
    "chair": ("rocked", "tipped over", "was painted"),
    "tree": ("bloomed", "grew back", "was planted"),
    "bell": ("tolled", "pealed", "was cast again"),
    "kite": ("soared", "dived", "was flown again"),
    "drum": ("boomed", "echoed", "was beaten"),
    "flag": ("fluttered", "flapped", "was folded"),
    "balloon": ("popped", "drifted", "was tied"),
    "ball": ("bounced", "rolled away", "was kicked"),
}
THINGS = tuple(THING_HABITS)
EVENTS = (
    "crashed", "stopped", "failed", "broke", "fell down", "shook", "was slow", "was late", "went down",
    "did not work", "made a noise", "was lost",
)  # fmt: skip
STATES = (
    "full", "empty", "hot", "cold", "wet", "old", "weak", "loose", "dirty", "broken", "heavy", "new", "small",
    "slow",
)  # fmt: skip
# What a thing does most naturally; drawn about a third of the time, so that the text reads well.
LIKELY_EVENTS = {
    "server": "crashed", "computer": "crashed", "plane": "crashed", "car": "broke", "truck": "stopped",
    "train": "was late", "clock": "was slow", "network": "went down", "lamp": "fell down", "bridge": "shook",
    "tree": "fell down", "printer": "did not work", "boat": "was lost", "kite": "was lost",
    "drum": "made a noise",
}  # fmt: skip
LIKELY_STATES = {
    "disk": "full", "battery": "empty", "engine": "hot", "oven": "hot", "kettle": "full", "network": "slow",
    "roof": "wet", "window": "broken", "table": "weak", "bell": "heavy", "door": "loose", "truck": "heavy",
}  # fmt: skip
ADJECTIVES = ("old", "new", "big", "little", "red", "black", "good")

# ---------------------------------------------------------------------------- names, for "He" and "She"
# One habit each; the same twelve for boys and girls, so that the verb does not tell the name.
HABITS = (
    "painted", "sang", "danced", "read", "cooked", "swam", "wrote", "slept", "climbed", "laughed", "cried",
    "ran",
)  # fmt: skip
BOYS = ("Tom", "Ben", "Max", "Sam", "Tim", "Jack", "Leo", "John", "Paul", "Mark", "Dan", "Peter")
GIRLS = ("Lily", "Anna", "Mia", "Sara", "Emma", "Lucy", "Mary", "Kate", "Rose", "Jane", "Nina", "Eva")
NAME_HABIT = dict(zip(BOYS, HABITS, strict=True)) | dict(zip(GIRLS, (*HABITS[5:], *HABITS[:5]), strict=True))
HABIT_TAILS = ("", " all day", " at home", " with joy", " in the sun", " again")
PLACES = ("park", "garden", "kitchen", "forest", "house", "school", "market", "river", "farm", "beach")

# ---------------------------------------------------------------------------- nouns in both numbers
# singular: (plural, its own predicates)
AGREEING: dict[str, tuple[str, tuple[str, str]]] = {
    "key": ("keys", ("rusty", "missing")),
    "cabinet": ("cabinets", ("wooden", "closed")),
    "book": ("books", ("thick", "open")),
    "shelf": ("shelves", ("dusty", "crooked")),
    "flower": ("flowers", ("pretty", "fresh")),
    "picture": ("pictures", ("framed", "square")),
    "letter": ("letters", ("sealed", "secret")),
    "apple": ("apples", ("ripe", "sweet")),
    "child": ("children", ("noisy", "polite")),
    "dog": ("dogs", ("loyal", "barking")),
    "cat": ("cats", ("lazy", "asleep")),
    "bird": ("birds", ("singing", "feathered")),
    "coin": ("coins", ("golden", "round")),
    "box": ("boxes", ("flat", "sturdy")),
    "cup": ("cups", ("cracked", "clean")),
    "shoe": ("shoes", ("tight", "muddy")),
    "hat": ("hats", ("silly", "tall")),
    "teacher": ("teachers", ("strict", "wise")),
    "farmer": ("farmers", ("busy", "strong")),
    "house": ("houses", ("quiet", "huge")),
    "rope": ("ropes", ("long", "tangled")),
    "stone": ("stones", ("smooth", "gray")),
    "toy": ("toys", ("cheap", "plastic")),
    "star": ("stars", ("bright", "distant")),
}
PREPOSITIONS = ("near", "behind", "with", "on", "under", "by", "of", "to")
COPULAS = {"singular": ("is", "was"), "plural": ("are", "were")}

# ---------------------------------------------------------------------------- possession
OBJECTS = (
    "ball", "cup", "book", "hat", "box", "key", "coin", "lamp", "cake", "apple", "kite", "stone", "bag",
    "shoe", "pen", "map", "ring", "rope", "drum", "flower",
)  # fmt: skip
HUES = ("red", "blue", "green", "yellow", "black", "white", "brown", "pink")
COLOURS = (*HUES, "big", "small", "new", "round")

# ---------------------------------------------------------------------------- who did what to whom
ACTORS = (
    "dog", "man", "cat", "bird", "fox", "horse", "cow", "mouse", "bear", "boy", "girl", "king", "queen",
    "wolf",
)  # fmt: skip
# present, past, participle, what happens to the one it was done to, what the doer does next
DEEDS = (
    ("bites", "bit", "bitten", "was hurt", "ran away"),
    ("chases", "chased", "chased", "hid", "was fast"),
    ("helps", "helped", "helped", "was glad", "was kind"),
    ("sees", "saw", "seen", "stood still", "looked"),
    ("pushes", "pushed", "pushed", "fell", "was strong"),
    ("feeds", "fed", "fed", "ate", "brought food"),
    ("kicks", "kicked", "kicked", "was hurt", "was angry"),
    ("finds", "found", "found", "was safe", "was happy"),
)

# ---------------------------------------------------------------------------- the rest
FACTS = (
    "The capital of France is Paris.", "The capital of Italy is Rome.", "The capital of Spain is Madrid.",
    "The capital of Japan is Tokyo.", "The capital of England is London.", "The sun rises in the east.",
    "The sun sets in the west.", "Ice is cold and fire is hot.", "A week has seven days.", "Bees make honey.",
    "Cows give milk.", "Birds can fly and fish can swim.", "Snow is white and grass is green.",
    "The sky is blue.", "The moon shines at night.", "The opposite of hot is cold.",
    "The opposite of up is down.", "The opposite of big is small.", "The opposite of day is night.",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
ANIMALS = ("dog", "cat", "bird", "fox", "horse", "cow", "mouse", "rabbit", "frog", "bear", "duck", "lion")
LISTED = (*OBJECTS, *COLOURS, *ANIMALS, *NUMBERS, *PLACES, *DAYS, *LETTERS)
