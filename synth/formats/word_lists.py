"""Word lists that every spec may draw from; a spec's own `lists` come on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LISTS: Mapping[str, Sequence[str]] = {
    "first_names": (
        "Ada Amara Anders Anika Aroha Bashir Bea Benat Bruno Camila Cedric Chiara Dalia Damir Daphne Diego Edda Elif "
        "Emeka Esme Farah Felix Freya Gael Gita Goran Hana Hugo Ines Ismael Ivo Jana Jiro Jonas Kaia Kamal Katya Kofi "
        "Lars Leila Linnea Luca Maeve Malik Marta Mateo Mei Milan Nadia Nico Nils Noor Odile Omar Oona Pablo Petra "
        "Priya Quinn Rafael Ravi Rhea Rosa Sami Selma Sven Tala Tariq Thea Tomas Ulla Uma Vera Viktor Wren Xenia Yara "
        "Yusuf Zadie Zoran"
    ).split(),
    "last_names": (
        "Abara Adler Almeida Andersson Arslan Bakker Barros Becker Bianchi Castellan Cho Conti Dahl Delgado Demir "
        "Dubois Eriksen Estevez Farkas Ferrari Fischer Fontaine Garnier Gupta Haddad Hansen Hartmann Ibarra Ito "
        "Ivanova Jansen Jovic Kapoor Keller Kimura Kovacs Kramer Larsen Lefevre Lindgren Mahmoud Marino Mbeki Mendes "
        "Moreau "
        "Nakata Navarro Novak Nyberg Okafor Olsen Orlov Park Pereira Petrov Quiroga Rahman Reyes Ricci Rossi Santos "
        "Sato Schwarz Silva Soto Tanaka Teixeira Thorne Umarov Urban Vargas Vidal Vogel Wagner Weiss Yilmaz Young "
        "Zeman Ziegler Zorn"
    ).split(),
    "mail_hosts": ("example.com", "example.org", "example.net", "mail.example"),
    "cities": (
        "Ardenfell Brookhaven Calder Dunmere Eastwick Farrow Glenport Harrowgate Ilford Juniper Kestrel Larkspur "
        "Marlow Northam Oakridge Pinehurst Quarry Redwater Silverton Thornbury Upton Valehaven Westmere Yarrow Zephyr"
    ).split(),
    "streets": (
        "Alder Birch Cedar Chapel Church Elm Garden Harbour High Hill King Lake Linden Maple Market Mill Oak Orchard "
        "Park Pine Queen River School Station Willow"
    ).split(),
}
