"""Who works at the firm, whom it knows, and what stands in its calendars. All people and firms are made up."""

from __future__ import annotations

# address before the @, name, role, phone
STAFF = (
    ("maeve.obrien", "Maeve O'Brien", "operations manager", "ext. 201"),
    ("zoe.adeyemi", "Zoë Adeyemi", "project lead", "ext. 214"),
    ("tomas.rivera", "Tomás Rivera", "site manager", "ext. 221"),
    ("soren.lindqvist", "Søren Lindqvist", "finance lead", "ext. 207"),
    ("hana.kobayashi", "Hana Kobayashi", "HR", "ext. 203"),
    ("conor.walsh", "Conor Walsh", "IT support", "ext. 250"),
    ("conor.whelan", "Conor Whelan", "architect", "ext. 219"),
    ("farah.siddiqui", "Farah Siddiqui", "front desk", "ext. 200"),
    ("aoife.brennan", "Aoife Brennan", "project lead", "ext. 216"),
    ("emil.novak", "Emil Novak", "site manager", "ext. 223"),
    ("brid.nolan", "Bríd Nolan", "accountant", "ext. 209"),
)
OTHERS = (
    ("ingrid.bauer@tessaro.example.com", "Ingrid Bauer", "Tessaro Tiles", "sales", "+353 1 555 0141"),
    ("ruth@marlwick.example.com", "Ruth Penhallow", "Marlwick Print", "owner", "+353 1 555 0118"),
    ("orders@pellworth.example.com", "Pellworth Press", "Pellworth Press", "orders", ""),
    ("paolo.ferri@lumenor.example.com", "Paolo Ferri", "Lumenor Lighting", "accounts", "+353 1 555 0172"),
    ("orla.fitzgerald@quayhouse.example.com", "Orla Fitzgerald", "Quay House Trust", "client", "+353 1 555 0106"),
    ("greta.holm@norrfelt.example.com", "Greta Holm", "Norrfelt Joinery", "sales", "+353 61 555 0133"),
    ("nuala.keane@castlebank.example.com", "Nuala Keane", "Castlebank Glass", "sales", "+353 61 555 0127"),
    ("viktor.hale@briarwood.example.com", "Viktor Hale", "Briarwood Gardens", "garden designer", "+353 61 555 0159"),
    ("martin.osei@lindenschool.example.com", "Martin Osei", "Linden School", "client", "+353 61 555 0164"),
)
ROOMS = ("maple", "cedar", "fern", "attic")

# identifier, title, start, end, organizer, attendees (of the firm without @), place, notes
EVENTS = (
    ("EVT-411", "Site call", "2025-09-16T10:00", "10:30", "maeve.obrien", "tomas.rivera", "online", ""),
    ("EVT-412", "Budget review", "2025-09-16T14:00", "15:00", "maeve.obrien", "soren.lindqvist", "Fern", ""),
    ("EVT-413", "Weekly stand-up", "2025-09-17T09:30", "10:00", "maeve.obrien", "zoe.adeyemi tomas.rivera soren.lindqvist", "Maple", ""),
    ("EVT-414", "Supplier call Tessaro Tiles", "2025-09-17T15:00", "15:30", "maeve.obrien", "ingrid.bauer@tessaro.example.com", "online", "Delivery dates and the open invoice."),
    ("EVT-415", "Interview junior architect", "2025-09-18T10:00", "11:00", "hana.kobayashi", "maeve.obrien", "Fern", ""),
    ("EVT-416", "Quay House design review", "2025-09-18T16:00", "17:00", "zoe.adeyemi", "maeve.obrien tomas.rivera", "Maple", "Bring the stair drawings."),
    ("EVT-417", "Quay House budget", "2025-09-19T09:00", "10:00", "maeve.obrien", "soren.lindqvist", "Attic", ""),
    ("EVT-418", "Fire drill walk-through", "2025-09-19T11:00", "12:00", "maeve.obrien", "hana.kobayashi conor.walsh", "Maple", ""),
    ("EVT-419", "Month plan", "2025-09-22T13:30", "14:30", "maeve.obrien", "zoe.adeyemi", "Maple", ""),
    ("EVT-420", "Site visit Alder Court", "2025-09-23T09:00", "11:30", "tomas.rivera", "zoe.adeyemi", "Alder Court", ""),
    ("EVT-421", "Dentist", "2025-09-24T16:30", "17:30", "maeve.obrien", "", "", ""),
    ("EVT-422", "Alder Court handover plan", "2025-09-24T10:00", "11:00", "maeve.obrien", "zoe.adeyemi tomas.rivera", "Fern", ""),
    ("EVT-423", "Payroll run", "2025-09-25T09:00", "12:00", "soren.lindqvist", "", "", ""),
    ("EVT-424", "Annual leave", "2025-09-29", "2025-09-30", "soren.lindqvist", "", "", ""),
    ("EVT-425", "Structure call Quay House", "2025-09-17T11:00", "12:00", "zoe.adeyemi", "conor.whelan", "online", ""),
    ("EVT-426", "Staff lunch", "2025-09-26T12:30", "13:30", "hana.kobayashi", "maeve.obrien", "Maple", ""),
    ("EVT-427", "Invoice check", "2025-09-18T13:30", "14:30", "soren.lindqvist", "", "", ""),
    ("EVT-428", "Tile delivery", "2025-09-18T08:00", "10:00", "tomas.rivera", "", "Quay House", ""),
    ("EVT-429", "Client walk Quay House", "2025-09-25T14:00", "15:00", "maeve.obrien", "orla.fitzgerald@quayhouse.example.com zoe.adeyemi", "Quay House", ""),
    ("EVT-430", "Brochure photos", "2025-09-29T14:00", "15:00", "maeve.obrien", "ruth@marlwick.example.com", "online", ""),
    ("EVT-439", "New carpet", "2025-09-18T14:30", "17:00", "farah.siddiqui", "", "Fern", ""),
    ("EVT-451", "Linden School client meeting", "2025-09-17T13:30", "14:30", "aoife.brennan", "martin.osei@lindenschool.example.com", "Cedar", ""),
    ("EVT-452", "Harbour Mill site visit", "2025-09-18T09:00", "12:00", "emil.novak", "", "Harbour Mill", ""),
    ("EVT-453", "Linden School windows", "2025-09-19T14:00", "15:00", "maeve.obrien", "aoife.brennan nuala.keane@castlebank.example.com", "Cedar", ""),
    ("EVT-454", "Linden School fee plan", "2025-09-22T10:00", "11:00", "maeve.obrien", "aoife.brennan brid.nolan", "Cedar", ""),
    ("EVT-455", "Harbour Mill costs", "2025-09-23T15:30", "16:30", "maeve.obrien", "emil.novak brid.nolan", "Cedar", ""),
    ("EVT-456", "Annual leave", "2025-09-25", "2025-09-26", "aoife.brennan", "", "", ""),
    ("EVT-457", "Safety course", "2025-09-22T09:00", "12:30", "emil.novak", "", "", ""),
    ("EVT-458", "Garden call Harbour Mill", "2025-09-24T14:00", "14:30", "maeve.obrien", "viktor.hale@briarwood.example.com", "online", ""),
    ("EVT-459", "VAT return", "2025-09-24T09:00", "11:00", "brid.nolan", "", "", ""),
    ("EVT-460", "Keys round", "2025-09-30T10:00", "10:30", "maeve.obrien", "farah.siddiqui", "", ""),
)  # fmt: skip
